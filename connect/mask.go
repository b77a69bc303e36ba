package connect

import (
	"context"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"millrace/connect/plugin"
)

// masked is a config as it is shown: passwords are hidden, unless the settings of the worker say otherwise.
func (w *Worker) masked(props map[string]string) map[string]string {
	if w.cfg.Settings.RevealSecrets || len(props) == 0 {
		return props
	}
	return w.maskAll(props)
}

func (w *Worker) maskAll(props map[string]string) map[string]string {
	c := w.definitions(props)
	out := make(map[string]string, len(props))
	for key, value := range props {
		out[key] = c.mask(key, value)
	}
	return out
}

// definitions are those that a stored config has, as far as its class is known.
func (w *Worker) definitions(props map[string]string) *checked {
	name := props[classKey]
	if name == "" {
		name = props["task.class"]
	}
	class, err := w.Class(name)
	if err != nil {
		class = &plugin.Class{}
	}
	return w.assemble(class, props)
}

// hidden puts what may be told in the place of the secrets of a config.
func (w *Worker) hidden(props map[string]string) *strings.Replacer {
	c := w.definitions(props)
	c.references(w.providers)
	return c.hidden()
}

// mask is a value as it is shown. What only refers to secrets is no secret.
func (c *checked) mask(key, value string) string {
	secret := looksSecret(key)
	if at, ok := c.places[key]; ok {
		secret = c.defs[at].Type == plugin.Password
	}
	switch {
	case value == "":
		return value
	case secret && onlyRefers(value):
		return value
	case secret:
		return plugin.Hidden
	default:
		return maskURL(value)
	}
}

// looksSecret says of a setting without a definition whether its value is better not shown.
func looksSecret(key string) bool {
	key = strings.ToLower(key)
	return slices.ContainsFunc([]string{
		"password", "passphrase", "passwd", "secret", "token", "jaas.config", "user.info", "credential", "private.key",
		"api.key", "access.key",
	}, func(part string) bool { return strings.Contains(key, part) })
}

// onlyRefers says whether a value is nothing but references.
func onlyRefers(value string) bool {
	refs := references(value)
	for _, ref := range refs {
		value = strings.Replace(value, ref, "", 1)
	}
	return len(refs) > 0 && strings.TrimSpace(value) == ""
}

// maskURL hides the passwords in a URL: that of its user, and those among its parameters.
func maskURL(value string) string {
	if !strings.Contains(value, ":") || !looksURL(value) {
		return value
	}
	hide := func(before, secret, after string) string {
		if secret == "" || onlyRefers(secret) {
			return before + secret + after
		}
		return before + plugin.Hidden + after
	}
	value = regexp.MustCompile(`://[^/?#@:]*:[^/?#]*@`).ReplaceAllStringFunc(value, func(m string) string {
		at := strings.IndexByte(m[3:], ':') + 4
		return hide(m[:at], m[at:len(m)-1], "@")
	})
	return regexp.MustCompile(`[?&;][^=&;#]*=[^&;#]*`).ReplaceAllStringFunc(value, func(m string) string {
		name, secret, _ := strings.Cut(m[1:], "=")
		if plain, err := url.PathUnescape(name); err != nil || !isPassword(plain) {
			return m
		}
		return hide(m[:len(name)+2], secret, "")
	})
}

// isPassword says whether a parameter of a URL is a password.
func isPassword(name string) bool {
	return strings.EqualFold(name, "password") || strings.EqualFold(name, "sslpassword")
}

func looksURL(value string) bool {
	scheme, _, ok := strings.Cut(strings.TrimSpace(value), "://")
	return ok && scheme != "" && !strings.ContainsAny(scheme, " /?#=@,")
}

// unmask puts the passwords of a stored config in the place of their masks, and tells of masks that it cannot do this
// with. stored may be nil.
func (w *Worker) unmask(props, stored map[string]string) (map[string]string, []plugin.Problem) {
	out := maps.Clone(props)
	var shown map[string]string
	var problems []plugin.Problem
	for _, key := range slices.Sorted(maps.Keys(props)) {
		value := props[key]
		if !strings.Contains(value, plugin.Hidden) {
			continue
		}
		if shown == nil {
			shown = w.maskAll(stored)
		}
		old, ok := stored[key]
		switch elsewhere := goesElsewhere(props, stored, shown); {
		case ok && old == value:
		case !ok || shown[key] != value:
			problems = append(problems, plugin.Problem{Key: key,
				Message: key + " is the mask of a password, and there is none that it could stand for: give the password"})
		case elsewhere != "":
			problems = append(problems, plugin.Problem{Key: key, Message: "the password of " + key +
				" is not kept where " + elsewhere + " changes, since it would be sent elsewhere: give the password again"})
		default:
			out[key] = old
		}
	}
	return out, problems
}

// goesElsewhere is a setting that says where a connector connects to and that is changed, "" if there is none: a kept
// password is for where it was given for.
func goesElsewhere(props, stored, shown map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(props)) {
		last := key[strings.LastIndexByte(key, '.')+1:]
		if !slices.Contains([]string{"url", "hostname", "host", "port", "servers"}, last) {
			continue
		}
		if v := props[key]; v != stored[key] && v != shown[key] {
			return key
		}
	}
	return ""
}

// storedProps are the settings of a connector, nil if it is not there.
func (w *Worker) storedProps(ctx context.Context, name string) map[string]string {
	if c, err := w.connector(ctx, name); err == nil {
		return c.Props
	}
	return nil
}
