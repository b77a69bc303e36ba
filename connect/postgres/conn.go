package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is what asks the catalog: *pgx.Conn, pgx.Tx or a pool.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// sessionParameters are what the decoders rely on and what a startup message may say, also through most poolers.
var sessionParameters = map[string]string{
	"client_encoding": "UTF8", "DateStyle": "ISO", "TimeZone": "UTC", "extra_float_digits": "3",
}

// ParseURL makes the configuration of a connection from jdbc:postgresql://, postgresql:// or postgres://. User,
// password and the parameters in more, by their names in a URL, come before what the URL says; empty ones say nothing.
// Every session has the settings that the decoders of this package rely on. The error never holds the URL. Neither the
// environment nor files that the URL does not name are looked at, but for PGSERVICE, with which no connection is made.
func ParseURL(raw, user, password string, more map[string]string) (*pgx.ConnConfig, error) {
	p, err := splitURL(raw)
	if err != nil {
		return nil, err
	}
	for name, value := range more {
		if value != "" {
			p[strings.ToLower(name)] = value
		}
	}
	if user != "" {
		p["user"] = user
	}
	if password != "" {
		p["password"] = password
	}
	dsn, err := p.settings()
	if err != nil {
		return nil, err
	}
	c, err := pgx.ParseConfig(dsn.text())
	if err != nil {
		return nil, fmt.Errorf("the connection's settings are not valid: %w", causeOf(err, p["password"]))
	}
	c.RuntimeParams = maps.Clone(sessionParameters) // not what the environment has
	c.RuntimeParams["application_name"] = dsn["application_name"]
	if options := dsn["options"]; options != "" { // which most poolers refuse
		c.RuntimeParams["options"] = options
	}
	if schema := p["currentschema"]; schema != "" {
		c.RuntimeParams["search_path"] = schema
	}
	dialer := &net.Dialer{KeepAlive: 15 * time.Second, Control: giveUp}
	c.DialFunc = dialer.DialContext
	c.AfterConnect = Session
	return c, nil
}

// causeOf is what is below the error of a parser, which would show the text that was parsed.
func causeOf(err error, secret string) error {
	var pe *pgconn.ParseConfigError
	cause := errors.New("a value is not valid")
	if errors.As(err, &pe) && pe.Unwrap() != nil {
		cause = pe.Unwrap()
	}
	if secret != "" && strings.Contains(cause.Error(), secret) {
		return errors.New("a value is not valid")
	}
	return cause
}

// Session sets what the decoders rely on and no startup parameter says; ParseURL has it run on each connection.
func Session(ctx context.Context, c *pgconn.PgConn) error {
	_, err := c.Exec(ctx, "SET IntervalStyle=postgres; SET bytea_output=hex; SET xmloption=content; "+
		"SET standard_conforming_strings=on").ReadAll()
	return err
}

// parameters are those of a URL, their names in lower case; host and port are lists separated by commas.
type parameters map[string]string

var errURL = errors.New("the URL is not valid: it must be jdbc:postgresql://HOST:PORT/DATABASE, " +
	"or the same with postgresql:// or postgres://")

// errPort does not show the port: where the password is not percent-encoded, it is a part of that.
var errPort = errors.New("the port in the URL is not valid: it must be a number from 1 to 65535, and what is special " +
	"in user or password must be percent-encoded")

// splitURL takes a URL apart. The hosts may be several, which the standard library's parser does not take.
func splitURL(raw string) (parameters, error) {
	rest, isJDBC := strings.CutPrefix(strings.TrimSpace(raw), "jdbc:")
	body, ok := strings.CutPrefix(rest, "postgresql:")
	if !ok && !isJDBC {
		body, ok = strings.CutPrefix(rest, "postgres:")
	}
	if !ok {
		return nil, errURL
	}
	p := parameters{}
	body, query, _ := strings.Cut(body, "?")
	body, hasHost := strings.CutPrefix(body, "//")
	if hasHost {
		var authority string
		authority, body, _ = strings.Cut(body, "/")
		if err := p.authority(authority); err != nil {
			return nil, err
		}
	} else if !isJDBC {
		return nil, errURL
	}
	db, err := url.PathUnescape(body)
	if err != nil {
		return nil, errURL
	}
	p["dbname"] = db
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("the parameters behind ? in the URL are not valid")
	}
	for name, v := range values {
		p[strings.ToLower(name)] = v[len(v)-1]
	}
	return p, nil
}

func (p parameters) authority(s string) error {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		user, password, _ := strings.Cut(s[:i], ":")
		var err1, err2 error
		p["user"], err1 = url.PathUnescape(user)
		p["password"], err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return errors.New("the user or password in the URL is not valid: percent-encode what is special in it")
		}
		s = s[i+1:]
	}
	var hosts, ports []string
	for part := range strings.SplitSeq(s, ",") {
		host, port := part, ""
		if i := strings.LastIndexByte(part, ':'); i >= 0 && !strings.HasSuffix(part, "]") {
			host, port = part[:i], part[i+1:]
		}
		host = strings.Trim(host, "[]")
		if host == "" {
			host = "localhost"
		}
		if port == "" {
			port = "5432"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return errPort
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	p["host"], p["port"] = strings.Join(hosts, ","), strings.Join(ports, ",")
	return nil
}

// keywords are the settings of a connection in libpq's words.
type keywords map[string]string

var targets = map[string]string{
	"": "any", "any": "any", "primary": "read-write", "master": "read-write", "secondary": "standby", "slave": "standby",
	"preferprimary": "any", "prefersecondary": "prefer-standby", "preferslave": "prefer-standby",
}

// settings are the parameters in libpq's words, all of those that the environment could otherwise fill in included.
func (p parameters) settings() (keywords, error) {
	k := keywords{
		"host": "localhost", "port": "5432", "user": "", "password": "", "dbname": "", "passfile": "", "servicefile": "",
		"sslmode": "prefer", "sslcert": "", "sslkey": "", "sslrootcert": "", "sslpassword": "", "sslsni": "1",
		"sslcertmode": "allow", "sslnegotiation": "", "channel_binding": "", "require_auth": "",
		"min_protocol_version": "", "max_protocol_version": "",
		"connect_timeout": "10", "application_name": "millrace", "options": "",
	}
	for name := range k {
		if v, ok := p[name]; ok {
			k[name] = v
		}
	}
	for name, from := range map[string][]string{
		"application_name": {"applicationname"}, "connect_timeout": {"connecttimeout", "logintimeout"},
	} {
		for _, f := range from {
			if v := p[f]; v != "" && v != "0" {
				k[name] = v
			}
		}
	}
	k["sslmode"] = p.sslmode()
	if v := p["target_session_attrs"]; v != "" {
		k["target_session_attrs"] = v
	} else {
		target, ok := targets[strings.ToLower(p["targetservertype"])]
		if !ok {
			return nil, fmt.Errorf("targetServerType=%s is not known: use any, primary, secondary or preferSecondary",
				p["targetservertype"])
		}
		k["target_session_attrs"] = target
	}
	if k["user"] == "" {
		return nil, errors.New("no user is given, neither in the URL nor beside it")
	}
	if k["dbname"] == "" {
		k["dbname"] = k["user"]
	}
	return k, nil
}

// sslmode understands what the JDBC driver adds to libpq's modes: ssl=true, alone, checks certificate and name.
func (p parameters) sslmode() string {
	switch ssl, mode := p["ssl"], p["sslmode"]; {
	case mode != "":
		return strings.ToLower(mode)
	case strings.HasSuffix(p["sslfactory"], ".NonValidatingFactory"):
		return "require"
	case ssl == "true" || ssl == "" && has(p, "ssl"):
		return "verify-full"
	case ssl == "false":
		return "disable"
	}
	return "prefer"
}

func has(p parameters, name string) bool {
	_, ok := p[name]
	return ok
}

func (k keywords) text() string {
	b := strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(k)) {
		value := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(k[name])
		fmt.Fprintf(&b, "%s='%s' ", name, value)
	}
	return b.String()
}
