package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
)

// requestor is a func as a kmsg.Requestor.
type requestor func(kmsg.Request) (kmsg.Response, error)

// Request implements kmsg.Requestor.
func (f requestor) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) { return f(r) }

// What is sent for many topics is the same each time, so that a seed replays a run.
func TestTopicsAreSentInOneOrder(t *testing.T) {
	var sent []kmsg.Request
	c := client.New(requestor(func(r kmsg.Request) (kmsg.Response, error) {
		sent = append(sent, r)
		return nil, errors.New("no answer")
	}), client.Options{Rand: rand.New(rand.NewPCG(1, 2))})
	var at []client.TopicPartition
	var moves []client.Move
	for i := range 20 {
		at = append(at, client.TopicPartition{Topic: fmt.Sprint("t", i/2), Partition: int32(i % 2)})
		moves = append(moves, client.Move{TopicPartition: at[i], Replicas: []int32{1}})
	}
	for name, send := range map[string]func(){
		"reassign":       func() { c.Reassign(t.Context(), moves) },
		"reassignments":  func() { _, _ = c.Reassignments(t.Context(), at...) },
		"elect":          func() { _, _ = c.ElectLeaders(t.Context(), client.ElectPreferred, at) },
		"replica states": func() { _, _ = c.ReplicaStates(t.Context(), at) },
	} {
		sent = nil
		send()
		first := sent
		for range 5 {
			sent = nil
			send()
			require.Equal(t, first, sent, name)
		}
	}
}
