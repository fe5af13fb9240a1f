package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// postgresWire follows PostgreSQL's protocol, version 3. A request is what a
// client sends until it asks for an answer, by Query, Sync or FunctionCall, and
// each of those gets one ReadyForQuery. The startup message gets one too.
type postgresWire struct {
	started bool
	asked   int // questions whether encryption is possible, answered by one byte
}

// The first word of a startup message where it is no version.
const (
	postgresCancel = 80877102
	postgresSSL    = 80877103
	postgresGSS    = 80877104
)

func (w *postgresWire) request(b []byte) (n int, answered bool, err error) {
	if !w.started {
		return w.startup(b)
	}
	for {
		kind, size, err := postgresMessage(b[n:])
		if size == 0 || err != nil {
			return 0, false, err
		}
		n += size
		switch kind {
		case 'Q', 'S', 'F':
			return n, true, nil
		case 'X', 'p', 'H', 'd', 'c', 'f': // the server has to see these at once
			return n, false, nil
		}
	}
}

func (w *postgresWire) startup(b []byte) (n int, answered bool, err error) {
	if len(b) < 8 {
		return 0, false, nil
	}
	size := int(binary.BigEndian.Uint32(b))
	if size < 8 || size > 1<<20 {
		return 0, false, fmt.Errorf("no startup message of PostgreSQL: % x", b[:8])
	}
	if len(b) < size {
		return 0, false, nil
	}
	switch binary.BigEndian.Uint32(b[4:]) {
	case postgresCancel:
	case postgresSSL, postgresGSS:
		w.asked++
	default:
		w.started, answered = true, true
	}
	return size, answered, nil
}

func (w *postgresWire) reply(b []byte) (n int, last bool, err error) {
	if w.asked > 0 && len(b) > 0 {
		w.asked--
		if b[0] != 'N' {
			return 0, false, errors.New("the connection is to be encrypted: use sslmode=disable")
		}
		return 1, false, nil
	}
	kind, n, err := postgresMessage(b)
	return n, kind == 'Z', err
}

// postgresMessage returns the kind and the size of the first message, 0 while it
// isn't whole.
func postgresMessage(b []byte) (kind byte, size int, err error) {
	if len(b) < 5 {
		return 0, 0, nil
	}
	size = 1 + int(binary.BigEndian.Uint32(b[1:]))
	if size < 5 || size > 1<<30 {
		return 0, 0, fmt.Errorf("no message of PostgreSQL: % x", b[:5])
	}
	if len(b) < size {
		return 0, 0, nil
	}
	return b[0], size, nil
}

func postgresStatement(request []byte) (text string, runs bool) {
	for {
		kind, size, err := postgresMessage(request)
		if size == 0 || err != nil {
			return text, runs
		}
		switch body := request[5:size]; kind {
		case 'Q':
			text, _ = untilZero(body)
			return text, true
		case 'P':
			_, rest := untilZero(body)
			text, _ = untilZero(rest)
		case 'E':
			runs = true
		}
		request = request[size:]
	}
}
