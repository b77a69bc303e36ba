package restv3

import (
	"net/url"
	"strconv"
)

// links builds the addresses and names that an answer carries, in the form the request used.
type links struct {
	root    string // scheme, authority and prefix: http://host:8082/v3
	cluster string // the cluster's id
}

// url is the absolute address of a path below the cluster; "" is the cluster itself.
func (l links) url(path string) string {
	return l.root + "/clusters/" + url.PathEscape(l.cluster) + path
}

func (l links) to(path string) Relationship {
	return Relationship{Related: l.url(path)}
}

// resource is the metadata of one resource; name is the tail of its CRN.
func (l links) resource(path, name string) ResourceMetadata {
	crn := "crn:///kafka=" + l.cluster + name
	return ResourceMetadata{Self: l.url(path), ResourceName: &crn}
}

// collection is the metadata of a list. There is never a next page.
func (l links) collection(path string) CollectionMetadata {
	return CollectionMetadata{Self: l.url(path)}
}

func brokerPath(id int32) string { return "/brokers/" + strconv.Itoa(int(id)) }

func topicPath(topic string) string { return "/topics/" + url.PathEscape(topic) }

func partitionPath(topic string, p int32) string {
	return topicPath(topic) + "/partitions/" + strconv.Itoa(int(p))
}

func replicaPath(topic string, p, broker int32) string {
	return partitionPath(topic, p) + "/replicas/" + strconv.Itoa(int(broker))
}

func brokerCRN(id int32) string { return "/broker=" + strconv.Itoa(int(id)) }

func topicCRN(topic string) string { return "/topic=" + topic }

func partitionCRN(topic string, p int32) string {
	return topicCRN(topic) + "/partition=" + strconv.Itoa(int(p))
}

func replicaCRN(topic string, p, broker int32) string {
	return partitionCRN(topic, p) + "/replica=" + strconv.Itoa(int(broker))
}
