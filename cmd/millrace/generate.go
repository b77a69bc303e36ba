package main

//go:generate go test . -run TestRunningDocument -update
