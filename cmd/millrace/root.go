package main

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// cli is what the commands share: the process's streams and environment, and the flags that all client commands have.
type cli struct {
	in       io.Reader
	out, err io.Writer
	environ  []string
	stop     func() // gives signals their default effect again

	url    string
	output string
}

const defaultURL = "http://127.0.0.1:8082"

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Event streaming over plain HTTP",
		Long: `Millrace is an event-streaming server whose front door is HTTP.

Start a node with ` + "`millrace serve`" + `, then use curl or the commands below.
The client commands talk to the node at --url, or MILLRACE_URL, or ` + defaultURL + `.

` + exitHelp,
		Example: `  millrace serve
  millrace topic create orders --partitions 4
  echo '{"id":1}' | millrace produce orders
  millrace consume orders --to-end`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.AddCommand(newServe(c), newDev(c), newHealth(c), newTopic(c), newProduce(c), newConsume(c), newGroup(c),
		newTxn(c), newSchema(c), newConnector(c), newCluster(c), newLog(c), newVersion(c))
	checkUsage(root)
	return root
}

// clientFlags adds the flags of a command that talks to a node.
func (c *cli) clientFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&c.url, "url", "", "the node's URL (default $MILLRACE_URL, else "+defaultURL+")")
	c.outputFlag(cmd)
}

func (c *cli) outputFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&c.output, "output", "o", "table", "table, or json for scripts")
}

// getenv reads a variable from the environment the command was given.
func (c *cli) getenv(name string) string {
	for _, kv := range c.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// asJSON reports whether -o asks for JSON.
func (c *cli) asJSON() (bool, error) {
	switch c.output {
	case "table":
		return false, nil
	case "json":
		return true, nil
	}
	return false, usagef("-o %s: want table or json", c.output)
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
