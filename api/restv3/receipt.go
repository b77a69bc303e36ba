package restv3

import (
	"strconv"
	"time"

	"millrace/api"
	"millrace/api/rawjson"
)

// receipts writes what became of records. It knows the parts that are the same for all records of a
// request, and the text of the time it wrote last.
type receipts struct {
	place []byte // the cluster's id and the topic's name, as members
	ms    int64
	time  []byte // ms as text
}

// set begins the receipts of another request.
func (rs *receipts) set(cluster, topic string) {
	place := append(rs.place[:0], `"cluster_id":`...)
	place = rawjson.AppendString(place, cluster)
	place = append(place, `,"topic_name":`...)
	place = rawjson.AppendString(place, topic)
	rs.place = append(place, `,"partition_id":`...)
}

// stored appends the members that tell where a record is, without braces.
func (rs *receipts) stored(dst []byte, e *entry) []byte {
	dst = append(dst, rs.place...)
	dst = strconv.AppendInt(dst, int64(e.at.Partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, e.at.Offset, 10)
	dst = append(dst, `,"timestamp":"`...)
	dst = rs.appendTime(dst, e.at.Timestamp)
	dst = append(dst, '"')
	dst = appendPart(dst, `,"key":`, &e.key)
	return appendPart(dst, `,"value":`, &e.value)
}

func appendPart(dst []byte, name string, f *part) []byte {
	if !f.present {
		return dst
	}
	dst = append(dst, name...)
	dst = append(dst, `{"type":"`...)
	dst = append(dst, formatNames[f.format]...)
	dst = append(dst, '"')
	if f.writer != nil {
		dst = appendSchema(dst, f.writer)
	}
	dst = appendInt(append(dst, `,"size":`...), f.size)
	return append(dst, '}')
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }

// appendTime appends a time as ISO-8601 in UTC, with a fraction only where there is one.
func (rs *receipts) appendTime(dst []byte, ms int64) []byte {
	if ms != rs.ms || len(rs.time) == 0 {
		layout := "2006-01-02T15:04:05.000Z"
		if ms%1000 == 0 {
			layout = "2006-01-02T15:04:05Z"
		}
		rs.ms, rs.time = ms, time.UnixMilli(ms).UTC().AppendFormat(rs.time[:0], layout)
	}
	return append(dst, rs.time...)
}

// refused appends the members that tell why a record was not stored, without braces.
func refused(dst []byte, err *api.Error) []byte {
	dst = append(dst, `"error_code":`...)
	dst = strconv.AppendInt(dst, int64(err.Fault.Code), 10)
	dst = append(dst, `,"message":`...)
	return rawjson.AppendString(dst, err.Text())
}
