package ktag

import "github.com/twmb/franz-go/pkg/kmsg"

// SetClient names, in a request that makes somebody a member of a group, the client and the host that it came
// from: Kafka has them from the connection.
func SetClient(t *kmsg.Tags, id, host string) {
	t.Set(tagClientID, []byte(id))
	t.Set(tagClientHost, []byte(host))
}

// Client reads what SetClient wrote; both are empty when it was not called.
func Client(t *kmsg.Tags) (id, host string) {
	i, _ := get(t, tagClientID)
	h, _ := get(t, tagClientHost)
	return string(i), string(h)
}
