package metadata

// brokerRESTKeys are the settings of the HTTP APIs that serve topics and groups: those of consumer instances by the
// names that the REST Proxy gives them. They are read when the node starts.
func brokerRESTKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "consumer.instance.timeout.ms", Type: intType, Default: "300000", check: between(1000, 1800000), Acts: true,
		Doc: "How long a consumer instance of the REST Proxy's API version 2 lives without a call.",
	}, {
		Name: "consumer.request.max.bytes", Type: longType, Default: "67108864", check: between(1, 134217728), Acts: true,
		Doc: "The most that a read of a consumer instance answers with, in bytes of keys and values.",
	}, {
		Name: "consumer.request.timeout.ms", Type: intType, Default: "1000", check: between(1, 30000), Acts: true,
		Doc: "How long a read of a consumer instance waits where neither the read nor the instance says.",
	}, {
		Name: "fetch.min.bytes", Type: intType, Default: "-1", check: between(-1, 10000000), Acts: true,
		Doc: "What a read of a consumer instance waits for where the instance does not say; below 2 it is the first record.",
	}, {
		Name: "keys.index.bytes", Type: longType, Default: "67108864", check: atLeast(1), Acts: true,
		Doc: "The memory of the indexes by which the values of keys are read over HTTP.",
	}}
}
