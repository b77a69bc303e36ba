package cdc

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// mask hides the values of text columns.
type mask struct {
	columns []*regexp.Regexp
	apply   func(string) string
}

var (
	truncateKey = regexp.MustCompile(`^column\.truncate\.to\.(\d+)\.chars$`)
	starsKey    = regexp.MustCompile(`^column\.mask\.with\.(\d+)\.chars$`)
	hashKey     = regexp.MustCompile(`^column\.mask\.hash(?:\.v2)?\.([^.]+)\.with\.salt\.(.*)$`)
)

// parseMask reads one setting of those that hide values.
func parseMask(key, value string) (*mask, error) {
	columns, err := compile(splitList(value))
	if err != nil {
		return nil, err
	}
	m := &mask{columns: columns}
	switch {
	case truncateKey.MatchString(key):
		n, err := strconv.Atoi(truncateKey.FindStringSubmatch(key)[1])
		if err != nil {
			return nil, err
		}
		m.apply = func(s string) string { return firstRunes(s, n) }
	case starsKey.MatchString(key):
		n, err := strconv.Atoi(starsKey.FindStringSubmatch(key)[1])
		if err != nil || n > 1<<20 {
			return nil, errors.New("so many characters are not possible")
		}
		stars := strings.Repeat("*", n)
		m.apply = func(string) string { return stars }
	case hashKey.MatchString(key):
		parts := hashKey.FindStringSubmatch(key)
		algorithm, err := hashOf(parts[1])
		if err != nil {
			return nil, err
		}
		salt := []byte(parts[2])
		m.apply = func(s string) string { return digest(algorithm(), salt, s) }
	default:
		return nil, errors.New("it is none of column.truncate.to.N.chars, column.mask.with.N.chars, " +
			"column.mask.hash.ALGORITHM.with.salt.SALT")
	}
	return m, nil
}

func digest(h hash.Hash, salt []byte, s string) string {
	h.Write(salt)
	h.Write([]byte(s))
	return hex.EncodeToString(h.Sum(nil))
}

func hashOf(name string) (func() hash.Hash, error) {
	switch strings.ToUpper(strings.ReplaceAll(name, "-", "")) {
	case "MD5":
		return md5.New, nil
	case "SHA1", "SHA":
		return sha1.New, nil
	case "SHA224":
		return sha256.New224, nil
	case "SHA256":
		return sha256.New, nil
	case "SHA384":
		return sha512.New384, nil
	case "SHA512":
		return sha512.New, nil
	}
	return nil, fmt.Errorf("there is no hash called %q", name)
}

func firstRunes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// adjust makes a name one that Avro takes.
func adjust(mode, name string, dots bool) string {
	if mode == "none" || mode == "" {
		return name
	}
	var b strings.Builder
	first := true
	for _, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' && mode == "avro"
		if c == '_' && mode == "avro_unicode" {
			b.WriteString("_u005f")
			first = false
			continue
		}
		ok := letter || !first && c >= '0' && c <= '9' || dots && c == '.'
		switch {
		case ok:
			b.WriteRune(c)
		case mode == "avro":
			b.WriteByte('_')
			if first && c >= '0' && c <= '9' && c < utf8.RuneSelf {
				b.WriteRune(c)
			}
		default:
			fmt.Fprintf(&b, "_u%04x", c)
		}
		first = dots && c == '.'
	}
	return b.String()
}
