package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Example: `  millrace version
  millrace version -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := c.asJSON()
			if err != nil {
				return err
			}
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if asJSON {
				return json.NewEncoder(c.out).Encode(map[string]string{
					"version": version, "commit": commit, "go": runtime.Version(), "platform": platform,
				})
			}
			_, err = fmt.Fprintf(c.out, "millrace %s (%s, %s, %s)\n", version, commit, runtime.Version(), platform)
			return err
		},
	}
	c.outputFlag(cmd)
	return cmd
}
