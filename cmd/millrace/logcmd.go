package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"millrace/record"
)

func newLog(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Look into the segment files of a stopped node",
		Long: `Look into the segment files of a stopped node, or of a Kafka broker: the format is the same.
Nothing is written.

PATH is a .log file, a partition's folder, or a data directory.`,
		Example: `  millrace log verify ./data
  millrace log dump ./data/orders-0 --records`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLogDump(c), newLogVerify(c))
	return cmd
}

func newLogVerify(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify PATH...",
		Short: "Check batches, offsets and indexes",
		Long: `Check every batch's length and checksum, that offsets rise within and across segments, that every record
decodes, and that each index entry points at the batch it names. Damage ends in exit code 6.

After a power cut the end of a partition's last segment may be torn: the next start cuts it off, and nothing that was
acknowledged is there. Damage anywhere else is a failing disk.`,
		Example: `  millrace log verify ./data
  millrace log verify ./data/orders-0 -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return c.verify(args) },
	}
	c.outputFlag(cmd)
	return cmd
}

// verified is the outcome of one verify.
type verified struct {
	Segments int      `json:"segments"`
	Batches  int      `json:"batches"`
	Records  int64    `json:"records"`
	Damages  []damage `json:"damages"`
}

func (c *cli) verify(paths []string) error {
	asJSON, err := c.asJSON()
	if err != nil {
		return err
	}
	v := verified{Damages: []damage{}}
	for _, p := range paths {
		files, err := logFiles(p)
		if err != nil {
			return err
		}
		if err := v.files(files); err != nil {
			return err
		}
	}
	if asJSON {
		if err := json.NewEncoder(c.out).Encode(v); err != nil {
			return err
		}
	} else {
		for _, d := range v.Damages {
			fmt.Fprintln(c.out, d)
		}
		fmt.Fprintf(c.out, "%s, %s, %s: ", plural(int(v.Segments), "segment"), plural(int(v.Batches), "batch"),
			plural(int(v.Records), "record"))
		if len(v.Damages) == 0 {
			fmt.Fprintln(c.out, "no damage")
		} else {
			fmt.Fprintln(c.out, plural(len(v.Damages), "damage"))
		}
	}
	if len(v.Damages) > 0 {
		return failf(exitDamaged, "%s found", plural(len(v.Damages), "damage"))
	}
	return nil
}

// files checks segments in order; those of one folder must not overlap.
func (v *verified) files(files []string) error {
	var before *segment
	for _, name := range files {
		s, err := scan(name, func(int64, record.Batch) error { return nil })
		if err != nil {
			return err
		}
		if err := s.checkIndexes(); err != nil {
			return err
		}
		if before != nil && filepath.Dir(before.path) == filepath.Dir(name) && before.end > s.base {
			s.damaged(name, 0, "starts at offset %d, but the segment before goes up to %d", s.base, before.end-1)
		}
		v.Segments++
		v.Batches += len(s.batches)
		v.Records += s.records
		v.Damages = append(v.Damages, s.damages...)
		before = s
	}
	return nil
}

func newLogDump(c *cli) *cobra.Command {
	var records bool
	cmd := &cobra.Command{
		Use:   "dump PATH...",
		Short: "Print batches and records",
		Long: `Print every batch of the segments at PATH in order, one a line, and with --records the records in them.

Damage is printed where it is met and ends in exit code 6; what comes before it is printed all the same.`,
		Example: `  millrace log dump ./data/orders-0
  millrace log dump ./data/orders-0/00000000000000000000.log --records -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return c.dump(args, records) },
	}
	cmd.Flags().BoolVar(&records, "records", false, "print the records too")
	c.outputFlag(cmd)
	return cmd
}

// dumped is one batch as `log dump -o json` prints it.
type dumped struct {
	File          string         `json:"file"`
	Position      int64          `json:"position"`
	Size          int            `json:"size"`
	BaseOffset    int64          `json:"base_offset"`
	LastOffset    int64          `json:"last_offset"`
	Count         int32          `json:"count"`
	Codec         string         `json:"codec"`
	TimestampType string         `json:"timestamp_type"`
	MaxTimestamp  string         `json:"max_timestamp"`
	LeaderEpoch   int32          `json:"leader_epoch"`
	ProducerID    int64          `json:"producer_id"`
	ProducerEpoch int16          `json:"producer_epoch"`
	BaseSequence  int32          `json:"base_sequence"`
	Transactional bool           `json:"transactional"`
	Control       bool           `json:"control"`
	CRC           uint32         `json:"crc"`
	Damage        string         `json:"damage,omitempty"`
	Records       []dumpedRecord `json:"records,omitempty"`
}

// dumpedRecord is one record; keys and values are bytes, so base64 in JSON, and null when absent.
type dumpedRecord struct {
	Offset    int64          `json:"offset"`
	Timestamp string         `json:"timestamp"`
	Key       []byte         `json:"key_base64"`
	Value     []byte         `json:"value_base64"`
	Headers   []dumpedHeader `json:"headers,omitempty"`
}

type dumpedHeader struct {
	Name  string `json:"name"`
	Value []byte `json:"value_base64"`
}

func (c *cli) dump(paths []string, records bool) error {
	asJSON, err := c.asJSON()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(c.out)
	enc := json.NewEncoder(out)
	damages := 0
	for _, p := range paths {
		files, err := logFiles(p)
		if err != nil {
			return err
		}
		for _, name := range files {
			s, err := scan(name, func(at int64, b record.Batch) error {
				d := describe(name, at, b, records)
				if asJSON {
					return enc.Encode(d)
				}
				return d.print(out)
			})
			if err != nil {
				return err
			}
			damages += len(s.damages)
			for _, d := range s.damages {
				fmt.Fprintln(c.err, d)
			}
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if damages > 0 {
		return failf(exitDamaged, "%d damages found", damages)
	}
	return nil
}

func describe(name string, at int64, b record.Batch, records bool) dumped {
	d := dumped{
		File: name, Position: at, Size: len(b), BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), Count: b.Count(),
		Codec: b.Codec().String(), TimestampType: b.TimestampType().String(), MaxTimestamp: instant(b.MaxTimestamp()),
		LeaderEpoch: b.LeaderEpoch(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), Transactional: b.IsTransactional(), Control: b.IsControl(), CRC: b.CRC(),
	}
	if err := b.Verify(); err != nil {
		d.Damage = err.Error()
		return d
	}
	if !records {
		return d
	}
	r := record.NewReader(b, maxBatch)
	defer r.Close()
	var rec record.Record
	for r.Next(&rec) {
		dr := dumpedRecord{
			Offset: rec.Offset, Timestamp: instant(rec.Timestamp), Key: clone(rec.Key), Value: clone(rec.Value),
		}
		for _, h := range rec.Headers {
			dr.Headers = append(dr.Headers, dumpedHeader{h.Key, clone(h.Value)})
		}
		d.Records = append(d.Records, dr)
	}
	if err := r.Err(); err != nil {
		d.Damage = err.Error()
	}
	return d
}

// clone copies bytes that are only lent; nil stays nil.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

func instant(ms int64) string {
	if ms < 0 {
		return "none"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// print writes a batch for a person.
func (d *dumped) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "offsets %d-%d  count %d  position %d  size %d  %s  %s %s  epoch %d",
		d.BaseOffset, d.LastOffset, d.Count, d.Position, d.Size, d.Codec, d.TimestampType, d.MaxTimestamp, d.LeaderEpoch)
	if d.ProducerID >= 0 {
		fmt.Fprintf(w, "  producer %d/%d sequence %d", d.ProducerID, d.ProducerEpoch, d.BaseSequence)
	}
	if d.Transactional {
		fmt.Fprint(w, "  transactional")
	}
	if d.Control {
		fmt.Fprint(w, "  control")
	}
	if d.Damage != "" {
		fmt.Fprintf(w, "  DAMAGED: %s", d.Damage)
	}
	fmt.Fprintln(w)
	for _, r := range d.Records {
		fmt.Fprintf(w, "  %d  %s  key %s  value %s", r.Offset, r.Timestamp, shownBytes(r.Key), shownBytes(r.Value))
		for _, h := range r.Headers {
			fmt.Fprintf(w, "  %s=%s", h.Name, shownBytes(h.Value))
		}
		fmt.Fprintln(w)
	}
	return err
}

func shownBytes(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}
