package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/server/metadata"
)

// checkUsage gives every command an own word for arguments and flags that are wrong: what it wants, and its usage.
func checkUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageOf(cmd, flagFault(err)) })
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if check(cmd, args) != nil {
				return usageOf(cmd, argumentFault(cmd, args))
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		checkUsage(sub)
	}
}

// usageOf is a usage error that ends with how the command is used.
func usageOf(cmd *cobra.Command, what string) error {
	return usagef("%s\nUsage: %s\nTry '%s --help'.", what, cmd.UseLine(), cmd.CommandPath())
}

// argumentFault says what is wrong with the number of arguments.
func argumentFault(cmd *cobra.Command, args []string) string {
	_, want, _ := strings.Cut(cmd.Use, " ")
	switch {
	case want == "" && cmd.HasAvailableSubCommands():
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}
		what := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), args[0])
		if near := nearest(args[0], names); near != "" {
			what += "; is " + near + " meant?"
		}
		return what
	case want == "":
		return fmt.Sprintf("%s takes no argument, but %q came", cmd.CommandPath(), args[0])
	case len(args) == 0:
		return fmt.Sprintf("%s wants %s, but no argument came", cmd.CommandPath(), want)
	case len(args) < len(strings.Fields(want)):
		return fmt.Sprintf("%s wants %s, but only %q came", cmd.CommandPath(), want, args)
	default:
		return fmt.Sprintf("%s wants %s alone, but %d arguments came: %q", cmd.CommandPath(), want, len(args), args)
	}
}

// flagFault says what is wrong with a flag.
func flagFault(err error) string {
	var (
		value   *pflag.InvalidValueError
		missing *pflag.ValueRequiredError
		unknown *pflag.NotExistError
	)
	switch {
	case errors.As(err, &value):
		return fmt.Sprintf("--%s %s: want %s", value.GetFlag().Name, value.GetValue(), wantedBy(value.GetFlag().Value.Type()))
	case errors.As(err, &missing):
		return fmt.Sprintf("--%s: want %s after it", missing.GetFlag().Name, wantedBy(missing.GetFlag().Value.Type()))
	case errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) == 1:
		return fmt.Sprintf("there is no flag -%s", unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		return fmt.Sprintf("there is no flag --%s", unknown.GetSpecifiedName())
	}
	return err.Error()
}

// wantedBy says what a type of flags is read from.
func wantedBy(kind string) string {
	switch kind {
	case "int", "int32", "int64":
		return "a whole number"
	case "duration":
		return "a duration such as 30s or 5m"
	case "bool":
		return "true or false"
	default:
		return "a value"
	}
}

// atLeastOne checks a flag that counts things, if it is given.
func atLeastOne(cmd *cobra.Command, name string) error {
	if n, err := cmd.Flags().GetInt(name); err == nil && cmd.Flags().Changed(name) && n < 1 {
		return usagef("--%s %d: want at least 1", name, n)
	}
	return nil
}

// errUnknownSetting says that there is no such setting, and which ones are near it.
func errUnknownSetting(name string) error {
	var known []string
	for _, n := range nodeSettings() {
		known = append(known, n.name)
	}
	for _, k := range metadata.NewSchema().Broker.Keys() {
		known = append(known, k.Name)
	}
	if near := nearest(name, known); near != "" {
		return fmt.Errorf("unknown setting %s; is %s meant?", strconv.Quote(name), near)
	}
	return fmt.Errorf("unknown setting %s; `millrace serve --help` and docs/configuration.md list them all",
		strconv.Quote(name))
}

// nearest lists up to three of the known names that differ from a name in a few letters, or else contain it.
func nearest(name string, known []string) string {
	const most = 3
	slack := max(len(name)/4, 1)
	var near []string
	for d := range slack + 1 {
		for _, k := range known {
			if distance(name, k) == d && !slices.Contains(near, k) {
				near = append(near, k)
			}
		}
	}
	few := len(near) > 0
	for _, k := range known {
		if !few && len(name) > 3 && strings.Contains(k, name) && !slices.Contains(near, k) {
			near = append(near, k)
		}
	}
	return strings.Join(near[:min(len(near), most)], " or ")
}

// distance is how many letters must be added, left out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			same := before
			if a[i] != b[j] {
				same++
			}
			before = row[j+1]
			row[j+1] = min(same, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
