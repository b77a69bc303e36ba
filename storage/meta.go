package storage

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// encodeMeta renders meta.properties.
func encodeMeta(m Meta) []byte {
	b := fmt.Appendf(nil, "version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\nmillrace.broker.epoch=%d\n",
		m.ClusterID, m.NodeID, m.DirectoryID, m.BrokerEpoch)
	if m.Incarnation != "" {
		b = fmt.Appendf(b, "millrace.incarnation=%s\n", m.Incarnation)
	}
	return b
}

// decodeMeta reads meta.properties: KEY=VALUE lines and # comments.
func decodeMeta(data []byte) (Meta, error) {
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			return Meta{}, fmt.Errorf("line %q is not KEY=VALUE", line)
		}
		values[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	if values["version"] != "1" {
		return Meta{}, fmt.Errorf("version is %q, not 1", values["version"])
	}
	id, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil {
		return Meta{}, fmt.Errorf("node.id %q is not a number", values["node.id"])
	}
	epoch := int64(-1)
	if text, ok := values["millrace.broker.epoch"]; ok {
		if epoch, err = strconv.ParseInt(text, 10, 64); err != nil {
			return Meta{}, fmt.Errorf("millrace.broker.epoch %q is not a number", text)
		}
	}
	return Meta{
		ClusterID: values["cluster.id"], NodeID: int32(id), DirectoryID: values["directory.id"], BrokerEpoch: epoch,
		Incarnation: values["millrace.incarnation"],
	}, nil
}

// readMeta reads meta.properties; ok is false if there is none.
func readMeta(fsys FS) (m Meta, ok bool, err error) {
	data, err := readFile(fsys, metaFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Meta{}, false, nil
	}
	if err != nil {
		return Meta{}, false, err
	}
	if m, err = decodeMeta(data); err != nil {
		return Meta{}, false, &CorruptionError{File: metaFile, Position: -1, Err: err}
	}
	return m, true, nil
}

// partitionMetadataFile holds, in each partition's folder, the id of its topic.
const partitionMetadataFile = "partition.metadata"

// noTopicID is the id of a partition whose metadata file never reached the disk.
var noTopicID [16]byte

// encodeTopicID renders a topic id as Kafka writes it: base64url of the 16 bytes without padding.
func encodeTopicID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func decodeTopicID(s string) (id [16]byte, err error) {
	p, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(p) != len(id) {
		return id, fmt.Errorf("topic id %q is not the base64url of 16 bytes", s)
	}
	return [16]byte(p), nil
}

// encodePartitionMetadata renders partition.metadata.
func encodePartitionMetadata(id [16]byte) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s\n", encodeTopicID(id))
}

// decodePartitionMetadata reads partition.metadata. A file of no bytes or of zeros is what a crash
// before the first sync leaves; it holds no id.
func decodePartitionMetadata(data []byte) ([16]byte, error) {
	if strings.Trim(string(data), "\x00") == "" {
		return noTopicID, nil
	}
	version, rest, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	id, ok := strings.CutPrefix(strings.TrimSpace(rest), "topic_id: ")
	if strings.TrimSpace(version) != "version: 0" || !ok {
		return noTopicID, errors.New(`not "version: 0" and "topic_id: ID"`)
	}
	return decodeTopicID(id)
}

// isPartOfMetadata says whether an interrupted write of partition.metadata leaves this, with no whole id in it.
func isPartOfMetadata(data []byte) bool {
	id, err := decodePartitionMetadata(data)
	if err == nil {
		return id == noTopicID
	}
	whole := string(encodePartitionMetadata(noTopicID))
	head := whole[:strings.Index(whole, "topic_id: ")+len("topic_id: ")]
	return len(data) < len(whole) && (strings.HasPrefix(head, string(data)) || strings.HasPrefix(string(data), head))
}

// readTopicID reads the topic id of a partition's folder, noTopicID if it never got one.
func readTopicID(fsys FS, folder string) ([16]byte, error) {
	name := folder + "/" + partitionMetadataFile
	data, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return noTopicID, nil
	}
	if err != nil {
		return noTopicID, err
	}
	id, err := decodePartitionMetadata(data)
	if err != nil {
		return noTopicID, &CorruptionError{File: name, Position: -1, Err: err}
	}
	return id, nil
}
