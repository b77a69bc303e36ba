package storage

import (
	"encoding/json"
	"errors"
	"hash/crc32"
)

// cleanMark is the clean-shutdown marker: JSON, as Kafka writes it, with one member more. The
// checkpoints that it vouches for name every log, its exact bounds and its topic id, so that opening
// a log needs no look at its files. One that is gone or has changed since would make logs look
// shorter than they are, so it is as good as a damaged log.
type cleanMark struct {
	Version     int               `json:"version"`
	BrokerEpoch int64             `json:"brokerEpoch"`
	Checkpoints map[string]uint32 `json:"checkpoints,omitempty"` // CRC-32C by file; none in Kafka's own
	Void        bool              `json:"void,omitempty"`        // it is there by a crash only and says nothing
}

// vouched are the checkpoints that a marker of ours vouches for.
func vouched() []string { return []string{recoveryPointFile, logStartFile, watermarkFile, topicIDFile} }

var errVouched = errors.New("not as the last clean stop left it: put it back, or remove " + cleanFile +
	" so that every log is read and checked")

// writeCleanMark writes the marker over the checkpoints as they are.
func writeCleanMark(fsys FS) error {
	m := cleanMark{BrokerEpoch: -1, Checkpoints: map[string]uint32{}}
	for _, name := range vouched() {
		data, err := readFile(fsys, name)
		if err != nil {
			return err
		}
		m.Checkpoints[name] = checksum(data)
	}
	data, err := json.Marshal(&m)
	if err != nil {
		return err
	}
	return writeFile(fsys, cleanFile, data)
}

// readCleanMark reads the marker and compares the checkpoints with it. complete says that it is ours:
// Kafka's, or one that is damaged, says no more than that the logs were closed.
func readCleanMark(fsys FS) (marked, complete bool, err error) {
	data, err := readFile(fsys, cleanFile)
	if isMissing(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	var m cleanMark
	bad := json.Unmarshal(data, &m) != nil
	if m.Void {
		return false, false, nil
	}
	if bad || len(m.Checkpoints) == 0 {
		return true, false, nil
	}
	for _, name := range vouched() {
		data, err := readFile(fsys, name)
		if err != nil && !isMissing(err) {
			return true, true, err
		}
		if err != nil || checksum(data) != m.Checkpoints[name] {
			return true, true, &CorruptionError{File: name, Position: -1, Err: errVouched}
		}
	}
	return true, true, nil
}

// voidCleanMark makes a marker that was removed be gone for good with the next sync of the directory.
func voidCleanMark(fsys FS) error {
	data, err := json.Marshal(&cleanMark{BrokerEpoch: -1, Void: true})
	if err != nil {
		return err
	}
	err = writeTmp(fsys, cleanFile, data, syncNow)
	if isFull(err) {
		return nil
	}
	if err == nil {
		err = fsys.Rename(cleanFile+tmpSuffix, cleanFile)
	}
	if err == nil {
		err = fsys.Remove(cleanFile)
	}
	return err
}

func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }
