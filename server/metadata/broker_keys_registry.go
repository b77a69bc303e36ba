package metadata

import "github.com/twmb/franz-go/pkg/kmsg"

// brokerRegistryKeys are the settings of the schema registry, by the names that other registries give them.
func brokerRegistryKeys() []ConfigKey {
	return []ConfigKey{{
		Name: "mode.mutability", Type: boolType, Default: "true", Acts: true,
		Doc: "Whether the modes of the schema registry can be changed.",
	}, {
		Name: "schema.compatibility.level", Type: kmsg.ConfigTypeString, Default: "BACKWARD",
		check: oneOf("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"),
		Acts:  true,
		Doc:   "The compatibility level of the schema registry where none is set.",
	}}
}
