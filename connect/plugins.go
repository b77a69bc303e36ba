package connect

import (
	"fmt"
	"slices"
	"strings"

	"millrace/connect/convert"
	"millrace/connect/plugin"
	"millrace/connect/transform"
)

// catalog finds plugins by their names. It never changes.
type catalog struct {
	classes []plugin.Class // connectors, by class
	others  []plugin.Info  // converters, header converters, transforms and predicates, by class
}

// newCatalog makes a catalog. Of two classes of one name it has the first.
func newCatalog(classes []plugin.Class) *catalog {
	c := &catalog{classes: slices.Clone(classes), others: slices.Concat(convert.Classes(), transform.Classes())}
	slices.SortStableFunc(c.classes, func(a, b plugin.Class) int { return strings.Compare(a.Class, b.Class) })
	c.classes = slices.CompactFunc(c.classes, func(a, b plugin.Class) bool { return a.Class == b.Class })
	slices.SortStableFunc(c.others, func(a, b plugin.Info) int { return strings.Compare(a.Class, b.Class) })
	return c
}

// class finds a class of connectors.
func (c *catalog) class(name string) (*plugin.Class, error) {
	var infos []plugin.Info
	for i := range c.classes {
		infos = append(infos, c.classes[i].Info)
	}
	i, err := find(infos, name, "class of connectors")
	if err != nil {
		return nil, err
	}
	return &c.classes[i], nil
}

// other finds a plugin of one of some kinds that is no class of connectors.
func (c *catalog) other(name, what string, kinds ...plugin.Kind) (*plugin.Info, error) {
	var infos []plugin.Info
	for i := range c.others {
		if slices.Contains(kinds, c.others[i].Kind) {
			infos = append(infos, c.others[i])
		}
	}
	i, err := find(infos, name, what)
	if err != nil {
		return nil, err
	}
	return &infos[i], nil
}

// find is the place of the plugin that a name fits best. Two that it fits as well as each other, and that are not of
// one class, are an error, as is none.
func find(infos []plugin.Info, name, what string) (int, error) {
	best, at := 0, -1
	tie := ""
	for i := range infos {
		switch fit := infos[i].Match(name); {
		case fit > best:
			best, at, tie = fit, i, ""
		case fit == best && best > 0 && infos[i].Class != infos[at].Class:
			tie = infos[i].Class
		}
	}
	switch {
	case tie != "":
		return 0, fmt.Errorf("the name %q may mean %s or %s: give the whole class", name, infos[at].Class, tie)
	case best == 0:
		names := make([]string, len(infos))
		for i := range infos {
			names[i] = infos[i].Class
		}
		slices.Sort(names)
		return 0, fmt.Errorf("there is no %s %.200q; there are %s", what, name, strings.Join(slices.Compact(names), ", "))
	}
	return at, nil
}

// Class finds a class of connectors by its class, its simple name, or one of its aliases.
func (w *Worker) Class(name string) (*plugin.Class, error) { return w.catalog.class(name) }

// Plugins lists the plugins, by class: connectors, and with all the other kinds behind them.
func (w *Worker) Plugins(all bool) []plugin.Info {
	var out []plugin.Info
	for i := range w.catalog.classes {
		out = append(out, w.catalog.classes[i].Info)
	}
	if all {
		out = append(out, w.catalog.others...)
	}
	return out
}

// PluginConfig lists the settings of a plugin: its own, and those that all connectors have, if it is one.
func (w *Worker) PluginConfig(name string) ([]ConfigKey, error) {
	if class, err := w.catalog.class(name); err == nil {
		defs := append(frameDefs(class.Kind), class.Defs...)
		return configKeys(defs), nil
	}
	i, err := find(w.Plugins(true), name, "plugin")
	if err != nil {
		return nil, &Error{Status: 404, Message: err.Error()}
	}
	return configKeys(w.Plugins(true)[i].Defs), nil
}

// configKeys are settings as they are told, numbered within their groups where they have no numbers.
func configKeys(defs plugin.Defs) []ConfigKey {
	out := make([]ConfigKey, len(defs))
	places := map[string]int{}
	for i := range defs {
		places[defs[i].Group]++
		out[i] = configKey(&defs[i], places[defs[i].Group])
	}
	return out
}
