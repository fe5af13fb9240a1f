package proxy

import (
	"bytes"
	"slices"
	"strings"
)

// Protocol is what client and server speak.
type Protocol int

// The protocols. MySQL is also MariaDB's.
const (
	Postgres Protocol = iota
	MySQL
	Redis
)

func (p Protocol) wire() wire {
	switch p {
	case Postgres:
		return &postgresWire{}
	case MySQL:
		return &mysqlWire{}
	default:
		return redisWire{}
	}
}

// Commit recognises the requests that end a transaction well: a statement, or
// the last of several, that is COMMIT. For Redis these are the scripts and EXEC.
// A COMMIT that was prepared earlier isn't recognised.
func (p Protocol) Commit(request []byte) bool {
	if p == Redis {
		return slices.Contains([]string{"EVAL", "EVALSHA", "FCALL", "EXEC"}, redisCommand(request))
	}
	text, _ := p.statement(request)
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("; \t\r\n", r) })
	return len(words) > 0 && strings.EqualFold(words[len(words)-1], "COMMIT")
}

// Statement recognises the requests that run a statement of the user, which
// outside a transaction commits by itself: all but those that begin and end
// transactions, prepare statements, or set the session up. For Redis it is
// Commit.
func (p Protocol) Statement(request []byte) bool {
	if p == Redis {
		return p.Commit(request)
	}
	text, runs := p.statement(request)
	if !runs {
		return false
	}
	words := strings.Fields(text)
	return len(words) == 0 || !slices.Contains(control, strings.ToUpper(strings.Trim(words[0], ";")))
}

// control are the first words of statements that change no data. The last is
// what pgx sends as a ping.
var control = []string{
	"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "SET", "SHOW", "DEALLOCATE", "--",
}

// statement returns a request's text, empty where it was prepared earlier, and
// whether it is run.
func (p Protocol) statement(request []byte) (text string, runs bool) {
	if p == MySQL {
		return mysqlStatement(request)
	}
	return postgresStatement(request)
}

// untilZero is the text at the start of b that ends with a zero byte.
func untilZero(b []byte) (text string, rest []byte) {
	before, after, _ := bytes.Cut(b, []byte{0})
	return string(before), after
}
