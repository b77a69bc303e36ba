package postgres

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
