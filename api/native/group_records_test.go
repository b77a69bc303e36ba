package native_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func count(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// A loop of plain calls reads everything once, whichever node it asks, and what it came back from is committed.
func TestWorkersPages(t *testing.T) {
	g := newCrew(t, 3)
	g.topic("t", 2)
	g.put("t", 0, count(0, 10)...)
	g.put("t", 1, count(10, 20)...)
	w, header := g.read(1, "a b/é", "topics=t&auto_offset_reset=earliest&max_records=7")
	require.Len(t, w.Records, 7)
	require.Equal(t, "a b/é", w.Group)
	require.Equal(t, w.Member, header.Get("Member"))
	require.Equal(t, fmt.Sprint(w.Delivery), header.Get("Delivery"))
	require.Equal(t, 2, w.partitions())
	got := w.values()
	member := w.Member
	for i := 0; len(got) < 20; i++ {
		w, header = g.read(i%3+1, "a b/é", "topics=t&auto_offset_reset=earliest&max_records=7&member="+member)
		require.Equal(t, member, w.Member)
		got = append(got, w.values()...)
	}
	require.ElementsMatch(t, count(0, 20), got)
	require.True(t, strings.HasPrefix(w.Next, "/v1/groups/a%20b%2F%C3%A9/records?member="+member+"&ack="), w.Next)
	require.Equal(t, "<"+w.Next+`>; rel="next"`, header.Get("Link"))
	status, _, text := g.do(2, "GET", strings.Replace(w.Next, "wait=60s", "wait=0s", 1), nil, "")
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, int64(10), g.committed(1, "a b/é", "t", 0))
	require.Equal(t, int64(10), g.committed(1, "a b/é", "t", 1))

	status, header, text = g.do(3, "GET", "/v1/groups/other/records?topics=t&auto_offset_reset=earliest&wait=60s",
		http.Header{"Accept": {"application/x-ndjson"}}, "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 20, strings.Count(text, "\n"))
	require.NotEmpty(t, header.Get("Member"))
	require.Contains(t, text, `{"topic":"t","partition":0,"offset":0,`)
}

// An answer that was lost is asked for again by its ack.
func TestWorkersLostAnswer(t *testing.T) {
	g := newCrew(t, 1)
	g.topic("t", 1)
	g.put("t", 0, count(0, 20)...)
	q := "topics=t&member=m&auto_offset_reset=earliest&max_records=5&ack="
	first, _ := g.read(1, "g", q+"0")
	again, _ := g.read(1, "g", q+"0")
	require.Equal(t, count(0, 5), first.values())
	require.Equal(t, count(0, 5), again.values())
	next, _ := g.read(1, "g", q+fmt.Sprint(again.Delivery))
	require.Equal(t, count(5, 10), next.values())
	require.Equal(t, int64(5), g.committed(1, "g", "t", 0))
	status, name, _ := g.refused(1, "GET", "/v1/groups/g/records?"+q+"9223372036854775807", "")
	require.Equal(t, 400, status)
	require.Equal(t, "INVALID_PARAMETER", name)
}

// Two workers share; one leaves, or comes no more, and the other reads its partitions.
func TestWorkersShare(t *testing.T) {
	g := newCrew(t, 3)
	g.topic("t", 6)
	const q = "topics=t&auto_offset_reset=earliest&member="
	share := func(want int, who ...string) {
		t.Helper()
		until(t, func() bool {
			even := true
			for i, m := range who {
				status, _, text := g.do(i%3+1, "GET", "/v1/groups/g/records?wait=0s&"+q+m, nil, "")
				if short := strings.Contains(m, "session="); short && status == http.StatusConflict {
					return false // its session was over: the next read joins again
				}
				require.Equal(t, http.StatusOK, status, text)
				var w worked
				require.NoError(t, json.Unmarshal([]byte(text), &w), text)
				even = even && w.partitions() == want
			}
			return even
		})
	}
	share(6, "a")
	share(3, "a", "b")
	for p := range 6 {
		g.put("t", p, "1")
	}
	status, _, text := g.do(2, "DELETE", "/v1/groups/g/members/b", nil, "")
	require.Equal(t, http.StatusNoContent, status, text)
	left := time.Now()
	got := 0
	for got < 6 {
		w, _ := g.read(1, "g", q+"a&wait=5s")
		got += len(w.Records)
	}
	require.Less(t, time.Since(left), 40*time.Second, "not at the end of its session")
	t.Logf("read the partitions of a worker %v after it left", time.Since(left))
	status, name, text := g.refused(3, "DELETE", "/v1/groups/g/members/b", "")
	require.Equal(t, 409, status)
	require.Equal(t, "UNKNOWN_MEMBER_ID", name, text)

	share(3, "a", "c&session=2s")
	for p := range 6 {
		g.put("t", p, "2")
	}
	died := time.Now() // c comes no more
	for got < 12 {
		w, _ := g.read(1, "g", q+"a&wait=5s")
		got += len(w.Records)
	}
	require.Less(t, time.Since(died), 40*time.Second, "not at the end of another's session")
	t.Logf("read the partitions of a worker %v after it died, with a session of 2s", time.Since(died))
}

// A member may commit by hand, for what it has; nobody may for a group with members.
func TestWorkersCommitByHand(t *testing.T) {
	g := newCrew(t, 3)
	g.topic("t", 2)
	g.put("t", 0, count(0, 10)...)
	commit := func(body string) (int, string) {
		t.Helper()
		status, _, text := g.do(2, "POST", "/v1/groups/g/offsets", nil, body)
		return status, text
	}
	status, text := commit(`{"offsets":[{"topic":"t","partition":0,"offset":3}]}`)
	require.Equal(t, 200, status, text)
	require.JSONEq(t, `{"offsets":[{"topic":"t","partition":0,"offset":3}]}`, text)
	w, _ := g.read(1, "g", "topics=t&member=m&commit=manual&auto_offset_reset=earliest")
	require.Equal(t, count(3, 10), w.values())
	w, _ = g.read(1, "g", "member=m&wait=0s&max_records=1")
	require.Empty(t, w.values())
	require.Equal(t, int64(3), g.committed(1, "g", "t", 0))
	status, text = commit(`{"member":"m","offsets":[{"topic":"t","partition":0,"offset":7,"metadata":"x"}]}`)
	require.Equal(t, 200, status, text)
	require.Equal(t, int64(7), g.committed(1, "g", "t", 0))
	status, text = commit(`{"member":"m"}`)
	require.Equal(t, 200, status, text)
	require.Equal(t, int64(10), g.committed(1, "g", "t", 0))
	status, text = commit(`{"member":"m","offsets":[{"topic":"t","partition":0,"offset":4},` +
		`{"topic":"t","partition":9,"offset":4}]}`)
	require.Equal(t, 409, status, text)
	var partial struct {
		Outcome string
		Commits []struct{ Committed bool }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &partial))
	require.Equal(t, "partial", partial.Outcome)
	require.True(t, partial.Commits[0].Committed)
	require.False(t, partial.Commits[1].Committed)
	require.Equal(t, int64(4), g.committed(1, "g", "t", 0))
	status, text = commit(`{"offsets":[{"topic":"t","partition":0,"offset":0}]}`)
	require.Equal(t, 409, status, text)
	require.Contains(t, text, "has members")
	status, text = commit(`{"member":"m","epoch":99,"offsets":[{"topic":"t","partition":0,"offset":0}]}`)
	require.Equal(t, 409, status, text)
	require.Contains(t, text, "STALE_MEMBER_EPOCH")
	status, text = commit(`{"member":"other","offsets":[{"topic":"t","partition":0,"offset":0}]}`)
	require.Equal(t, 409, status, text)
	require.Equal(t, int64(4), g.committed(1, "g", "t", 0))
	status, _, text = g.do(1, "GET", "/v1/groups/g/records?topics=t&member=m&commit=auto", nil, "")
	require.Equal(t, 409, status, text)
	require.Contains(t, text, "MEMBER_CONFLICT")
}

// A worker that the group went on without is told, once, and may join again.
func TestWorkersFenced(t *testing.T) {
	g := newCrew(t, 3)
	g.topic("t", 1)
	g.put("t", 0, count(0, 5)...)
	q := "/v1/groups/g/records?topics=t&member=m&auto_offset_reset=earliest&wait=60s"
	status, _, text := g.do(1, "GET", q, nil, "")
	require.Equal(t, 200, status, text)
	g.expel("g", "m")
	status, name, text := g.refused(2, "GET", q, "")
	require.Equal(t, 409, status)
	require.Equal(t, "FENCED_MEMBER_EPOCH", name)
	require.Contains(t, text, "without ack joins again")
	w, _ := g.read(3, "g", "topics=t&member=m&auto_offset_reset=earliest")
	require.Equal(t, count(0, 5), w.values(), "it had not come back from these")
	g.expel("g", "m")
	status, name, _ = g.refused(2, "POST", "/v1/groups/g/offsets", `{"member":"m"}`)
	require.Equal(t, 409, status)
	require.Equal(t, "FENCED_MEMBER_EPOCH", name)
	status, name, _ = g.refused(2, "POST", "/v1/groups/g/offsets", `{"member":"m"}`)
	require.Equal(t, 409, status)
	require.Equal(t, "UNKNOWN_MEMBER_ID", name)
	status, name, _ = g.refused(2, "GET", "/v1/groups/g/records?member=m", "")
	require.Equal(t, 409, status)
	require.Equal(t, "UNKNOWN_MEMBER_ID", name)
}

// A record may be larger than the bound of a page.
func TestWorkersLargeRecords(t *testing.T) {
	g := newCrew(t, 1)
	g.topic("t", 1)
	long := `"` + strings.Repeat("a", 100_000) + `"`
	g.put("t", 0, long, long, "1", "2")
	for _, want := range []int{1, 1, 2} {
		const q = "topics=t&member=m&auto_offset_reset=earliest&wait=60s&max_bytes=1000"
		status, _, text := g.do(1, "GET", "/v1/groups/g/records?"+q, http.Header{"Accept": {"application/x-ndjson"}}, "")
		require.Equal(t, 200, status, text)
		require.Equal(t, want, strings.Count(text, "\n"))
	}
}

// Topics that a pattern matches are read when they are made.
func TestWorkersPattern(t *testing.T) {
	g := newCrew(t, 1)
	g.topic("orders-1", 1)
	g.topic("other", 1)
	g.put("other", 0, "9")
	q := "pattern=orders-.*&member=m&auto_offset_reset=earliest"
	g.put("orders-1", 0, "1")
	w, _ := g.read(1, "g", q)
	require.Equal(t, []string{"1"}, w.values())
	g.topic("orders-2", 2)
	g.put("orders-2", 1, "2")
	w, _ = g.read(1, "g", q)
	require.Equal(t, []string{"2"}, w.values())
}

// A stream is a member as long as its connection.
func TestWorkersStreams(t *testing.T) {
	g := newCrew(t, 3)
	g.topic("t", 4)
	for p := range 4 {
		g.put("t", p, fmt.Sprint(p))
	}
	q := "topics=t&auto_offset_reset=earliest"
	a := g.stream(1, "g", q)
	var got []string
	for range 4 {
		e := a.next("")
		var r struct {
			Topic     string
			Partition int32
			Offset    int64
			Value     json.Number
		}
		require.NoError(t, json.Unmarshal([]byte(e.data), &r))
		require.Equal(t, fmt.Sprintf("t:%d:%d", r.Partition, r.Offset+1), e.id)
		got = append(got, r.Value.String())
	}
	require.Equal(t, count(0, 4), slices.Sorted(slices.Values(got)))
	until(t, func() bool { // what was written is committed
		for p := range 4 {
			if g.committed(1, "g", "t", int32(p)) != 1 {
				return false
			}
		}
		return true
	})
	b := g.stream(2, "g", q)
	for !strings.Contains(b.next("assignment").data, `"partitions":[`) {
	}
	a.next("assignment")
	for p := range 4 {
		g.put("t", p, fmt.Sprint(10+p))
	}
	b.next("")
	b.next("")
	a.next("")
	a.next("")
	b.close()
	closed := time.Now()
	for p := range 4 {
		g.put("t", p, fmt.Sprint(20+p))
	}
	for range 4 {
		for !strings.Contains(a.next("").data, `"value":2`) {
		}
	}
	require.Less(t, time.Since(closed), 40*time.Second, "not at the end of its session")
	t.Logf("read the partitions of a stream %v after it closed", time.Since(closed))
}

// A stream whose commits are the client's own, and one that the server ends.
func TestWorkersStreamsByHand(t *testing.T) {
	g := newCrew(t, 3)
	g.topic("t", 1)
	g.put("t", 0, count(0, 5)...)
	s := g.stream(1, "g", "topics=t&auto_offset_reset=earliest&commit=manual&member=m")
	require.Contains(t, s.next("assignment").data, `"member":"m"`)
	for range 5 {
		s.next("")
	}
	status, _, text := g.do(2, "POST", "/v1/groups/g/offsets", nil,
		`{"member":"m","offsets":[{"topic":"t","partition":0,"offset":2}]}`)
	require.Equal(t, 200, status, text)
	status, _, text = g.do(3, "GET", "/v1/groups/g/records?topics=t&member=m&commit=manual&wait=0s", nil, "")
	require.Equal(t, 200, status, text)
	require.Equal(t, int64(2), g.committed(1, "g", "t", 0))
	s.close()
	s = g.stream(2, "g", "topics=t")
	require.Contains(t, s.next("").data, `"value":2`)
	g.c.Stop(g.coordinator(1, "g"))
	require.Contains(t, []string{`{"reason":"drain"}`, `{"reason":"moved"}`}, s.next("end").data)
	other := 1
	if g.c.Node(1) == nil {
		other = 2
	}
	g.insist(t.Context(), other, 99)
	var got []string
	for !slices.Contains(got, "99") { // and before it what was not committed
		w, _ := g.read(other, "g", "topics=t&member=n&auto_offset_reset=none&wait=20s")
		got = append(got, w.values()...)
	}
	require.Subset(t, append(count(2, 5), "99"), got)
}
