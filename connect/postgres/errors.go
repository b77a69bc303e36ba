package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Fault says what an error of the database concerns, and so what can be done about it.
type Fault int

// The faults.
const (
	None       Fault = iota // no error
	Connection              // the server is not there, or the session is gone: again, after a while
	Retry                   // serialization, deadlock, resources: the same transaction again
	Data                    // one record or row: 22xxx, 23xxx
	Schema                  // the statement: a table or column that is not there, 42xxx
	Denied                  // authentication or privileges: 28xxx, 42501
	Config                  // the server's settings, a slot, a publication: 55000, 55006, 42704
	Other                   // anything else
)

// Transient says whether the same may succeed later, with nothing changed.
func (f Fault) Transient() bool { return f == Connection || f == Retry }

// faultsByCode are the codes whose class does not tell.
var faultsByCode = map[string]Fault{
	"42501": Denied, "42704": Config, "42710": Config, "25006": Config, "3D000": Config, "57P04": Config,
	"55000": Config, "55006": Config, "55P03": Retry, "57014": Retry, "57P01": Connection, "57P02": Connection,
	"57P03": Connection, "57P05": Connection, "53300": Connection, "53400": Config, "P0001": Data, "25P03": Connection,
	"25P04": Connection, "58P01": Config, "72000": Retry,
}

var faultsByClass = map[string]Fault{
	"08": Connection, "22": Data, "23": Data, "44": Data, "28": Denied, "40": Retry, "42": Schema, "3F": Schema,
	"53": Retry, "58": Retry,
}

// ownClasses are the classes of the server's own codes.
const ownClasses = "00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 10 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F 40 " +
	"42 44 53 54 55 57 58 72 F0 HV P0 XX"

// raised says whether a code is of a trigger's or function's choice: RAISE ... USING ERRCODE.
func raised(code string) bool { return len(code) == 5 && !strings.Contains(ownClasses, code[:2]) }

// FaultOf says what an error concerns.
func FaultOf(err error) Fault {
	var pg *pgconn.PgError
	var parse *pgconn.ParseConfigError
	switch {
	case err == nil:
		return None
	case errors.As(err, &pg):
		if f, ok := faultsByCode[pg.Code]; ok {
			return f
		}
		if f, ok := faultsByClass[pg.Code[:min(2, len(pg.Code))]]; ok {
			return f
		}
		if raised(pg.Code) {
			return Data
		}
		return Other
	case errors.As(err, &parse):
		return Config
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, context.Canceled):
		return Other
	case isCertificate(err):
		return Config
	case isBroken(err):
		return Connection
	}
	return Other
}

func isCertificate(err error) bool {
	var cert *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	return errors.As(err, &cert) || errors.As(err, &unknown) || errors.As(err, &name)
}

// isBroken says whether a connection could not be made or is of no more use.
func isBroken(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) || pgconn.Timeout(err) {
		return true
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, pgconn.ErrConnClosed, syscall.ECONNRESET,
		syscall.EPIPE, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Explained is an error of the database with what was being done, what it means, and what to do. Its text holds no
// values of rows.
type Explained struct {
	What   string // "read table public.orders"
	Text   string // of the server, as far as it may be shown
	Remedy string // "" if there is none
	Err    error
}

func (e *Explained) Error() string {
	s := e.Text
	if e.What != "" {
		s = e.What + ": " + s
	}
	if e.Remedy != "" {
		s += ". " + e.Remedy
	}
	return s
}

func (e *Explained) Unwrap() error { return e.Err }

// Explain says what failed, and what to do about it. It names table, column, constraint and SQLSTATE where the server
// does, and never shows what a row contains. What says what was being done. The error stays below it, for FaultOf.
func Explain(err error, what string) error {
	if err == nil {
		return nil
	}
	var done *Explained
	if errors.As(err, &done) {
		if what == "" || what == done.What {
			return err
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return &Explained{What: what, Text: serverText(pg), Remedy: remedy(pg), Err: err}
	}
	if e := networkFault(err); e != nil {
		e.What, e.Err = what, err
		return e
	}
	if what == "" {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// serverText is the server's message with what it is about. The messages of errors of data hold data, so only the names
// in them are shown.
func serverText(pg *pgconn.PgError) string {
	message := pg.Message
	switch class := pg.Code[:min(2, len(pg.Code))]; {
	case raised(pg.Code):
		message = dataTexts["P0001"]
	case slices.Contains([]string{"21", "22", "23", "44", "P0"}, class):
		message = cmp.Or(dataTexts[pg.Code], "the server refused a value")
	}
	b := strings.Builder{}
	b.WriteString(message)
	b.WriteString(" (SQLSTATE ")
	b.WriteString(pg.Code)
	table := pg.TableName
	if pg.SchemaName != "" && table != "" {
		table = pg.SchemaName + "." + table
	}
	for _, part := range [][2]string{{"table", table}, {"column", pg.ColumnName}, {"constraint", pg.ConstraintName},
		{"type", pg.DataTypeName}} {
		if part[1] != "" {
			b.WriteString(", " + part[0] + " " + part[1])
		}
	}
	b.WriteByte(')')
	return b.String()
}

var dataTexts = map[string]string{
	"21000": "two rows of one statement have one key",
	"22001": "a text is too long for its column",
	"22003": "a number is out of the range of its column",
	"22007": "a text is no date or time",
	"22008": "a date or time is out of range",
	"22012": "division by zero",
	"22021": "a text holds a character that the server cannot store: NUL, or bytes that are not UTF-8",
	"22P02": "a text is not of the form that its column's type has",
	"22P03": "a value is not of the binary form that its type has",
	"22P05": "a text holds a character that the server cannot store, such as \\u0000 in JSON",
	"22023": "a parameter's value is not valid",
	"23502": "a column that may not be null has no value",
	"23503": "the row that a foreign key refers to is not there, or is still referred to",
	"23505": "there is another row with the same key",
	"23514": "a check constraint is not met",
	"23P01": "an exclusion constraint is not met",
	"44000": "the row would not be visible through the view it is written to",
	"P0001": "a trigger or function raised an exception",
}

// remedies say what to do, by code.
var remedies = map[string]string{
	"28P01": "Check the user and the password",
	"28000": "Check the user, and that pg_hba.conf lets it in from here, with or without TLS; for change data capture " +
		"the line for the database is used, not one for replication alone",
	"3D000": "Check the name of the database",
	"3F000": "Create it, CREATE SCHEMA with the name in double quotes, or check the name, and that the role has USAGE " +
		"on it",
	"42P01": "Check the table's name and schema, which are case-sensitive, and that the role has USAGE on the schema",
	"42703": "Check the column's name, which is case-sensitive, and whether it was dropped or renamed",
	"42P10": "The columns of the key need a unique index on exactly these",
	"42883": "An extension may be missing, or the column has another type than expected",
	"53300": "Raise max_connections, or let fewer tasks run",
	"53400": "Raise the limit that the message names, such as max_replication_slots or max_wal_senders, and restart " +
		"the server",
	"53100": "Free space on the server's disk",
	"57P03": "The server is starting or stopping; it is tried again",
	"25006": "The server is a standby, or the session is read-only: connect to the primary",
	"55P03": "Another session holds a lock; it is tried again",
	"57014": "The statement took longer than the server or the role allows: see statement_timeout",
	"22021": "Remove the character at the source",
	"22P05": "Remove the character at the source",
	"0A000": "The server's version, or this kind of table, does not support it",
	"26000": "A pooler in transaction mode drops prepared statements: connect to the server itself",
}

// remedy says what to do about an error of the server.
func remedy(pg *pgconn.PgError) string {
	message := pg.Message
	about := func(s string) bool { return strings.Contains(message, s) }
	switch pg.Code {
	case "42501":
		if about("replication") || about("walsender") {
			return "Give the role the attribute: ALTER ROLE ... REPLICATION (or rds_replication and the like where the server " +
				"is managed)"
		}
		if about("owner") || about("publication") {
			return "Have the owner of the tables, or a superuser, do it, or make the publication beforehand"
		}
		return "Grant it: GRANT USAGE ON SCHEMA and GRANT SELECT (and INSERT, UPDATE, DELETE for a sink) ON the table " +
			"to the role"
	case "55000":
		switch {
		case about("wal_level"):
			return "Set wal_level = logical in the server's configuration and restart it"
		case about("slot") && (about("invalid") || about("no longer") || about("can no longer") || about("obsolete")):
			return "The slot lost WAL that it needed: drop it, and take a new snapshot"
		case about("recovery") || about("standby"):
			return "Connect to the primary"
		}
	case "55006":
		if about("slot") {
			return "Another session reads from the slot: stop it, or give this connector a slot of its own"
		}
	case "42704":
		switch {
		case about("slot"):
			return "The replication slot is not there: it was dropped, or never made. Changes since its last position are " +
				"gone; " +
				"take a new snapshot"
		case about("publication"):
			return "Create the publication before the slot, or let the connector do so"
		}
	case "XX000":
		if about("publication") {
			return "The publication did not exist when the slot was made: drop the slot, and take a new snapshot"
		}
	}
	return remedies[pg.Code]
}

// networkFault explains what went wrong below the protocol, nil if nothing did.
func networkFault(err error) *Explained {
	var dns *net.DNSError
	switch {
	case isCertificate(err):
		return &Explained{Text: "the server's certificate is not accepted: " + certificateText(err),
			Remedy: "Give the right sslrootcert and host name, or another sslmode"}
	case strings.Contains(err.Error(), "server refused TLS"):
		return &Explained{Text: "the server does not do TLS", Remedy: "Switch ssl on there, or use sslmode=prefer or disable"}
	case errors.As(err, &dns):
		return &Explained{Text: fmt.Sprintf("the host %s is not known", dns.Name), Remedy: "Check the host's name"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Explained{Text: "nobody listens there: the connection was refused",
			Remedy: "Check host and port, and that the server runs and listens on that address"}
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return &Explained{Text: "the host cannot be reached", Remedy: "Check the address, routes and firewalls"}
	case pgconn.Timeout(err), errors.Is(err, context.DeadlineExceeded):
		return &Explained{Text: "the server did not answer in time", Remedy: "Check host and port, firewalls, and the " +
			"server's load"}
	case errors.Is(err, context.Canceled):
		return nil
	case isBroken(err):
		return &Explained{Text: "the connection was lost"}
	}
	return nil
}

func certificateText(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return "its authority is not known"
	case errors.As(err, &name):
		return "it is for another host"
	}
	var cert *tls.CertificateVerificationError
	errors.As(err, &cert)
	return cert.Err.Error()
}
