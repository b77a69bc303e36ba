package tidy

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write NOTICE from the module list")

// allowed are the licences that code linked into the binary may have.
var allowed = []string{"MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Apache-2.0", "MPL-2.0"}

type module struct {
	Path, Version, Dir string
	Main               bool
}

// NOTICE lists every module linked into the binary with its licence, and each licence is one we may ship.
func TestNoticeIsCurrent(t *testing.T) {
	tree := load(t)
	var b bytes.Buffer
	fmt.Fprintf(&b, "Millrace\nLicensed under the Apache License, Version 2.0; see LICENSE.\n\n")
	fmt.Fprintf(&b, "The binary links the modules below, each under its own licence.\n\n")
	for _, m := range linked(t, tree.Root) {
		licence := licenceOf(m.Dir)
		if !slices.Contains(allowed, licence) {
			t.Errorf("%s has licence %q, which is not one of %v", m.Path, licence, allowed)
		}
		fmt.Fprintf(&b, "%s %s %s\n", m.Path, m.Version, licence)
	}
	name := filepath.Join(tree.Root, "NOTICE")
	if *update {
		require.NoError(t, os.WriteFile(name, b.Bytes(), 0o644))
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(got), "NOTICE is stale: run make notice")
}

// linked lists the modules behind the packages of the binary, by path.
func linked(t *testing.T, root string) []module {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/millrace")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	names := strings.Fields(string(out))
	slices.Sort(names)
	names = slices.Compact(names)
	cmd = exec.Command("go", append([]string{"list", "-m", "-json"}, names...)...)
	cmd.Dir = root
	out, err = cmd.Output()
	require.NoError(t, err)
	var mods []module
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var m module
		require.NoError(t, dec.Decode(&m))
		if !m.Main {
			mods = append(mods, m)
		}
	}
	return mods
}

// licenceOf names the licence of the module in dir by the words of its text.
func licenceOf(dir string) string {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return ""
	}
	for _, name := range names {
		base := strings.ToUpper(filepath.Base(name))
		if !strings.HasPrefix(base, "LICENSE") && !strings.HasPrefix(base, "LICENCE") && !strings.HasPrefix(base, "COPYING") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if l := classify(strings.Join(strings.Fields(string(text)), " ")); l != "" {
			return l
		}
	}
	return ""
}

func classify(text string) string {
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case has("GNU GENERAL PUBLIC LICENSE"), has("GNU LESSER GENERAL"), has("GNU AFFERO"):
		return "GPL"
	case has("Mozilla Public License"):
		return "MPL-2.0"
	case has("Apache License"):
		return "Apache-2.0"
	case has("Redistribution and use in source and binary forms") && has("Neither the name"):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	case has("Permission is hereby granted, free of charge"):
		return "MIT"
	case has("Permission to use, copy, modify, and/or distribute"):
		return "ISC"
	}
	return ""
}
