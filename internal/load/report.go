package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// report prints one line a row and returns how many gates were missed. Rates on a shared machine drift, so each line
// gives the CPU a record of both sides and the cores that others used.
func report(w io.Writer, rows []*row) (missed int) {
	tw := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "row\twhat\tmedians\tagainst the gate\tCPU us/record\tother cores\tverdict")
	for _, r := range rows {
		v := r.judge(r.median)
		word := "pass"
		switch {
		case r.failed != nil:
			word = "FAIL: " + r.failed.Error()
			missed++
		case v.open:
			word = "no baseline"
		case !v.met:
			word = "MISS"
			missed++
		}
		cells := []string{r.id, r.what, r.each(r.show), v.text, r.each(showCPU), r.foreign(), word}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	tw.Flush()
	return missed
}

// each renders a figure of every contender that ran, ours first.
func (r *row) each(show func(result) string) string {
	var parts []string
	for _, c := range r.contenders {
		if len(r.results[c.name]) > 0 {
			parts = append(parts, c.name+" "+show(r.median(c.name)))
		}
	}
	return strings.Join(parts, ", ")
}

// foreign is the worst median of what other programs used; above a quarter of a core the row is worth running again.
func (r *row) foreign() string {
	most := 0.0
	for _, c := range r.contenders {
		most = max(most, r.median(c.name).ForeignCores)
	}
	mark := ""
	if most > 0.25 {
		mark = " (noisy: run again)"
	}
	return fmt.Sprintf("%.2f%s", most, mark)
}

func showRate(r result) string {
	if r.RecPerS >= 100_000 {
		return fmt.Sprintf("%.0f k/s", r.RecPerS/1000)
	}
	return fmt.Sprintf("%.1f k/s", r.RecPerS/1000)
}

func showLatency(r result) string { return fmt.Sprintf("p50 %.2f p99 %.2f ms", r.P50/1000, r.P99/1000) }
func showCPU(r result) string     { return fmt.Sprintf("%.2f", r.ServerCPUPerMRec) }
func showIdle(r result) string {
	return fmt.Sprintf("%.1f KiB each, %.4f cores", r.KiBEach, r.ServerCores)
}
func showTook(r result) string { return fmt.Sprintf("%.3f s", r.Took) }
func showRSS(r result) string  { return fmt.Sprintf("%.0f MiB", r.RSSMiB) }
