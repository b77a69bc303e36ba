package connect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"millrace/connect/plugin"
)

// The groups of the settings that the runner owns, in the order in which they are shown.
const (
	commonGroup      = "Common"
	transformsGroup  = "Transforms"
	predicatesGroup  = "Predicates"
	errorsGroup      = "Error Handling"
	topicsGroup      = "Topic Creation"
	exactlyOnceGroup = "Exactly Once Support"
	offsetsGroup     = "offsets.topic"
)

// nameKey, classKey and so on are the settings that the runner itself reads by name.
const (
	nameKey       = "name"
	classKey      = "connector.class"
	transformsKey = "transforms"
	predicatesKey = "predicates"
	topicsKey     = "topics"
	regexKey      = "topics.regex"
	deadLetterKey = "errors.deadletterqueue.topic.name"
	creationKey   = "topic.creation.groups"
)

// nameBytes bounds the name of a connector, mostTasks its tasks.
const (
	nameBytes = 255
	mostTasks = 1000
)

// frameDefs are the settings that every connector of a kind has, whatever its class.
func frameDefs(kind plugin.Kind) plugin.Defs {
	defs := slices.Concat(commonDefs(), chainDefs(), reloadDefs(), errorDefs())
	if kind == plugin.SinkKind {
		return slices.Concat(defs, sinkDefs())
	}
	return slices.Concat(defs, sourceDefs())
}

func commonDefs() plugin.Defs {
	converter := func(part string) plugin.Def {
		return plugin.Def{
			Name: part + ".converter", Type: plugin.ClassOf, Null: true, Importance: plugin.Low, Group: commonGroup,
			Width: "SHORT", Display: strings.ToUpper(part[:1]) + part[1:] + " converter class",
			Doc: "The class that translates each " + part + " between the connector and its topics; without one, the " +
				"workers' own, with the settings that the workers and the connector have for it.",
		}
	}
	return plugin.Defs{
		{
			Name: nameKey, Type: plugin.String, Required: true, Importance: plugin.High, Group: commonGroup, Width: "MEDIUM",
			Display: "Connector name", Check: checkName, Doc: "The name of the connector, which no other one has.",
		}, {
			Name: classKey, Type: plugin.ClassOf, Required: true, Importance: plugin.High, Group: commonGroup, Width: "LONG",
			Display: "Connector class",
			Doc:     "What the connector is: a class, its simple name, or that without Connector at its end.",
		}, {
			Name: "connector.plugin.version", Type: plugin.String, Null: true, Importance: plugin.Medium, Group: commonGroup,
			Width: "LONG", Display: "Connector version", Doc: "Which version of the class to run.",
			Unused: "this server has one version of each class",
		}, {
			Name: "tasks.max", Type: plugin.Int, Default: "1", Importance: plugin.High, Group: commonGroup, Width: "SHORT",
			Display: "Tasks max", Check: between(1, mostTasks), Doc: "The most tasks that the work is divided between.",
		}, {
			Name: "tasks.max.enforce", Type: plugin.Boolean, Default: "true", Importance: plugin.Low, Group: commonGroup,
			Width: "SHORT", Display: "Enforce tasks max",
			Doc:    "Whether a connector that makes more tasks than it may is failed.",
			Unused: "no connector of this server makes more tasks than it may",
		},
		converter("key"), converter("value"), converter("header"),
		{
			Name: "millrace.auto.restart", Type: plugin.Boolean, Default: "true", Importance: plugin.Medium, Group: commonGroup,
			Width: "SHORT", Display: "Restart after failures",
			Doc: "Whether the connector and its tasks are started again by themselves after they failed.",
		},
	}
}

func chainDefs() plugin.Defs {
	return plugin.Defs{
		{
			Name: transformsKey, Type: plugin.List, Importance: plugin.Low, Group: transformsGroup, Width: "LONG",
			Display: "Transforms", Check: checkAliases,
			Doc: "Names of the transforms that records pass, in this order; what each does is set under transforms.NAME.",
		}, {
			Name: predicatesKey, Type: plugin.List, Importance: plugin.Low, Group: predicatesGroup, Width: "LONG",
			Display: "Predicates", Check: checkAliases,
			Doc: "Names of conditions that transforms may depend on; what each tests is set under predicates.NAME.",
		},
	}
}

func reloadDefs() plugin.Defs {
	return plugin.Defs{{
		Name: "config.action.reload", Type: plugin.String, Default: "restart", Importance: plugin.Low, Group: commonGroup,
		Width: "MEDIUM", Display: "Reload action", Values: []string{"none", "restart"},
		Doc:    "What happens when a secret that the config refers to is known to have changed.",
		Unused: "the sources of secrets do not tell when one changes; restart the connector then",
	}}
}

func errorDefs() plugin.Defs {
	def := func(d plugin.Def) plugin.Def {
		d.Group, d.Importance = errorsGroup, plugin.Medium
		return d
	}
	return plugin.Defs{
		def(plugin.Def{
			Name: "errors.retry.timeout", Type: plugin.Long, Default: "0", Width: "MEDIUM", Display: "Retry timeout for errors",
			Check: atLeast(-1),
			Doc:   "For how many milliseconds an operation that failed is tried again; -1 is without end, 0 not at all.",
		}),
		def(plugin.Def{
			Name: "errors.retry.delay.max.ms", Type: plugin.Long, Default: "60000", Width: "MEDIUM", Check: atLeast(1),
			Display: "Maximum delay between retries",
			Doc:     "The longest pause between two tries, in milliseconds.",
		}),
		def(plugin.Def{
			Name: "errors.tolerance", Type: plugin.String, Default: "none", Width: "SHORT", Display: "Error tolerance",
			Values: []string{"none", "all"},
			Doc:    "none: a record that cannot be processed fails the task; all: it is passed over.",
		}),
		def(plugin.Def{
			Name: "errors.log.enable", Type: plugin.Boolean, Default: "false", Width: "SHORT", Display: "Log errors",
			Doc: "Whether each record that cannot be processed is logged, by its place.",
		}),
		def(plugin.Def{
			Name: "errors.log.include.messages", Type: plugin.Boolean, Default: "false", Width: "SHORT",
			Display: "Log error details", Doc: "Whether the log says more about the record than its place.",
		}),
		def(plugin.Def{
			Name: deadLetterKey, Type: plugin.String, Width: "MEDIUM", Display: "Dead-letter topic",
			Check: checkTopic,
			Doc:   "The topic that takes the records which cannot be processed; empty: none does.",
		}),
		def(plugin.Def{
			Name: "errors.deadletterqueue.topic.replication.factor", Type: plugin.Short, Default: "-1", Width: "MEDIUM",
			Display: "Dead-letter topic's replication factor", Check: replicas,
			Doc: "With how many replicas the dead-letter topic is made when it is missing; -1: the broker's default.",
		}),
		def(plugin.Def{
			Name: "errors.deadletterqueue.context.headers.enable", Type: plugin.Boolean, Default: "true", Width: "MEDIUM",
			Display: "Dead-letter headers",
			Doc:     "Whether headers of dead letters tell where the record was and what was wrong with it.",
		}),
	}
}

func sinkDefs() plugin.Defs {
	return plugin.Defs{
		{
			Name: topicsKey, Type: plugin.List, Importance: plugin.High, Group: commonGroup, Width: "LONG", Display: "Topics",
			Check: checkTopics, Doc: "The topics to read. This or topics.regex must be there.",
		}, {
			Name: regexKey, Type: plugin.String, Importance: plugin.High, Group: commonGroup, Width: "LONG",
			Display: "Topics regex", Check: checkRegex,
			Doc: "A regular expression; all topics are read whose whole name it matches.",
		},
	}
}

func sourceDefs() plugin.Defs {
	return plugin.Defs{
		{
			Name: creationKey, Type: plugin.List, Importance: plugin.Low, Group: topicsGroup, Width: "LONG",
			Display: "Topic creation groups", Check: checkAliases,
			Doc: "Names of groups of topics that are made in a way of their own; each is set under topic.creation.NAME.",
		}, {
			Name: "exactly.once.support", Type: plugin.String, Default: "requested", Importance: plugin.Medium,
			Group: exactlyOnceGroup, Width: "SHORT", Display: "Exactly once support",
			Values: []string{"requested", "required"},
			Doc:    "Whether the connector must be able to write each record once.",
			Unused: "every source of this server writes records and offsets in one transaction",
		}, {
			Name: "transaction.boundary", Type: plugin.String, Default: "poll", Importance: plugin.Medium,
			Group: exactlyOnceGroup, Width: "SHORT", Display: "Transaction boundary",
			Values: []string{"poll", "interval", "connector"}, Doc: "What is written in one transaction.",
			Unused: "each batch that a source gives is one transaction",
		}, {
			Name: "transaction.boundary.interval.ms", Type: plugin.Long, Null: true, Importance: plugin.Low,
			Group: exactlyOnceGroup, Width: "SHORT", Display: "Transaction interval", Check: atLeast(1),
			Doc:    "How long a transaction lasts where the boundary is interval.",
			Unused: "each batch that a source gives is one transaction",
		}, {
			Name: "offsets.storage.topic", Type: plugin.String, Null: true, Importance: plugin.Low, Group: offsetsGroup,
			Width: "SHORT", Display: "Offsets topic", Check: checkTopic,
			Doc:    "A topic of the connector's own for its offsets.",
			Unused: "the offsets of all connectors are in the workers' topic, in the transactions of the records",
		},
	}
}

// transformDefs are the settings that the runner owns of each transform, without their prefix.
func transformDefs() plugin.Defs {
	return plugin.Defs{
		{
			Name: "type", Type: plugin.ClassOf, Required: true, Importance: plugin.High, Width: "LONG",
			Display: "Transformation type", Doc: "The class of the transform.",
		}, {
			Name: "predicate", Type: plugin.String, Importance: plugin.Medium, Width: "LONG", Display: "Predicate",
			Doc: "The name of the condition under which it applies; empty: it always does.",
		}, {
			Name: "negate", Type: plugin.Boolean, Default: "false", Importance: plugin.Medium, Width: "LONG",
			Display: "Negate", Doc: "Whether it applies where the condition does not hold.",
		}, versionDef(),
	}
}

// predicateDefs are the settings that the runner owns of each predicate, without their prefix.
func predicateDefs() plugin.Defs {
	return plugin.Defs{{
		Name: "type", Type: plugin.ClassOf, Required: true, Importance: plugin.High, Width: "LONG",
		Display: "Predicate type", Doc: "The class of the predicate.",
	}, versionDef()}
}

func versionDef() plugin.Def {
	return plugin.Def{
		Name: "plugin.version", Type: plugin.String, Null: true, Importance: plugin.Medium, Width: "LONG",
		Display: "Version", Doc: "Which version of the class to use.", Unused: "this server has one version of each class",
	}
}

// creationDefs are the settings of a group of topics to make, without their prefix. Those of the default group have no
// patterns, and must be there.
func creationDefs(group string) plugin.Defs {
	isDefault := group == "default"
	number := func(name, display, doc string, check func(string) error) plugin.Def {
		return plugin.Def{
			Name: name, Type: plugin.Int, Required: isDefault, Null: !isDefault, Importance: plugin.Low, Width: "LONG",
			Display: display, Doc: doc + "; -1: the broker's default.", Check: check, Group: topicsGroup,
		}
	}
	defs := plugin.Defs{
		number("replication.factor", "Replication factor", "With how many replicas the topics are made", replicas),
		number("partitions", "Partition count", "With how many partitions the topics are made", partitions),
	}
	if isDefault {
		return defs
	}
	pattern := func(name, doc string, required bool) plugin.Def {
		return plugin.Def{
			Name: name, Type: plugin.List, Required: required, Importance: plugin.Low, Width: "LONG", Display: name, Doc: doc,
			Group: topicsGroup, Check: checkRegexes,
		}
	}
	return append(plugin.Defs{
		pattern("include", "Regular expressions for the names of the topics in the group.", true),
		pattern("exclude", "Regular expressions for names of topics that are not in the group after all.", false),
	}, defs...)
}

func checkName(v string) error {
	switch {
	case strings.TrimSpace(v) == "":
		return errors.New("it may not be empty")
	case len(v) > nameBytes:
		return fmt.Errorf("it may have at most %d bytes", nameBytes)
	case !utf8.ValidString(v): // what is JSON would have another one
		return errors.New("it must be UTF-8")
	case strings.ContainsFunc(v, unicode.IsControl):
		return errors.New("it may not hold control characters")
	}
	return nil
}
