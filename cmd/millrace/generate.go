package main

//go:generate go test . -run TestRunningDocument|TestConnectSettingsDocument -update
