package schemaregistry

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"millrace/schemaregistry/schema"
)

func quoted(s string) string {
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strconv.Quote(s)
}

// maxSubject bounds the bytes of a subject: each record of it has its name.
const maxSubject = 4096

// checkSubject refuses names that no subject may have.
func checkSubject(s string) (Subject, error) {
	name := ParseSubject(s)
	reason := ""
	switch {
	case !utf8.ValidString(s):
		reason = "it is not UTF-8"
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		reason = "it has control characters"
	case len(s) > maxSubject:
		reason = "it is longer than " + strconv.Itoa(maxSubject) + " bytes"
	case ParseSubject(name.String()) != name:
		reason = "without its context it is a subject of another one"
	case name.Name == "__GLOBAL" || name.Name == "__EMPTY":
		reason = "the name is reserved"
	case name.Context == globalContext:
		reason = "the context is above all others, and has no subjects"
	case strings.HasPrefix(name.String(), EveryContext):
		reason = "it is in no single context"
	default:
		return name, nil
	}
	return name, refuse(CodeInvalidSubject, "%s is no name of a subject: %s", quoted(s), reason)
}

// checkScope refuses names that nothing with a config or a mode may have.
func checkScope(s string) (Subject, error) {
	if name := ParseSubject(s); name == (Subject{Context: globalContext}) {
		return name, nil
	}
	return checkSubject(s)
}

// latestVersion is what parseVersion makes of "latest".
const latestVersion = -1

// parseVersion reads a version as clients write it.
func parseVersion(s string) (int, error) {
	if strings.EqualFold(s, "latest") || s == "-1" {
		return latestVersion, nil
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 || s[0] == '+' {
		return 0, refuse(CodeInvalidVersion, "%s is no version: those are from 1 to %d, and \"latest\"", quoted(s),
			math.MaxInt32)
	}
	return int(n), nil
}

const maxRuleName = 256

// checkRules refuses rules that clients could not run.
func checkRules(rs *schema.RuleSet) error {
	if rs == nil {
		return nil
	}
	switch rs.EnableAt {
	case "", "ALL", "CLIENT", "GATEWAY", "SERVER", "NONE":
	default:
		return refuse(CodeInvalidRuleSet, "rules cannot be enabled at %s", quoted(rs.EnableAt))
	}
	names := map[string]bool{}
	for i, rules := range [][]schema.Rule{rs.MigrationRules, rs.DomainRules, rs.EncodingRules} {
		for j := range rules {
			rule := &rules[j]
			if reason := ruleFault(rule, i == 0); reason != "" {
				return refuse(CodeInvalidRuleSet, "rule %s %s", quoted(rule.Name), reason)
			}
			if names[rule.Name] {
				return refuse(CodeInvalidRuleSet, "two rules have the name %s", quoted(rule.Name))
			}
			names[rule.Name] = true
		}
	}
	return nil
}

// ruleFault says what is wrong with a rule; "" if nothing is.
func ruleFault(rule *schema.Rule, migration bool) string {
	if !isRuleName(rule.Name) {
		return "needs a name of at most 256 letters, digits, _ and -, that begins with a letter or _"
	}
	if rule.Type == "" {
		return "has no type"
	}
	if k := rule.Kind; k != "" && k != "TRANSFORM" && k != "CONDITION" {
		return "has the unknown kind " + quoted(k)
	}
	pair := false
	switch rule.Mode {
	case "UPGRADE", "DOWNGRADE", "UPDOWN":
		if pair = rule.Mode == "UPDOWN"; !migration {
			return "is no migration rule, so its mode cannot be " + rule.Mode
		}
	case "", "WRITE", "READ", "WRITEREAD":
		if pair = rule.Mode == "WRITEREAD" || rule.Mode == ""; migration {
			return "is a migration rule, so its mode must be UPGRADE, DOWNGRADE or UPDOWN"
		}
	default:
		return "has the unknown mode " + quoted(rule.Mode)
	}
	for _, action := range []string{rule.OnSuccess, rule.OnFailure} {
		if n := strings.Count(action, ","); n > 1 || n == 1 && !pair {
			return "has the action " + quoted(action) + ": two are for the modes UPDOWN and WRITEREAD only"
		}
	}
	return ""
}

func isRuleName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != "" && len(s) <= maxRuleName
}
