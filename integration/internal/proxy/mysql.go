package proxy

import (
	"encoding/binary"
	"errors"
)

// mysqlWire follows the protocol of MySQL and MariaDB. A request is one command,
// and the client sends the next one when it has the whole answer.
type mysqlWire struct {
	ready bool // the client has answered the server's greeting
	short bool // a result's rows are the only ones with an end marker: the columns have none

	command byte // that is being answered
	results bool // rows are on their way
	ends    int  // markers still to come
	left    int  // packets still to come, for a prepared statement
}

// What the wire has to know: commands, bits of flags.
const (
	mysqlQuit     = 0x01
	mysqlQuery    = 0x03
	mysqlPrepare  = 0x16
	mysqlExecute  = 0x17
	mysqlLongData = 0x18
	mysqlClose    = 0x19

	mysqlCompress     = 1 << 5
	mysqlSSL          = 1 << 11
	mysqlDeprecateEOF = 1 << 24
	mysqlMoreResults  = 1 << 3
)

// mysqlPacket returns the size of the first packet, 0 while it isn't whole, its
// number and what is in it. What is too long for a packet goes on in the next one.
func mysqlPacket(b []byte) (n int, number byte, body []byte) {
	const longest = 1<<24 - 1
	for size := longest; size == longest; {
		if len(b) < n+4 {
			return 0, 0, nil
		}
		size = int(b[n]) | int(b[n+1])<<8 | int(b[n+2])<<16
		n += 4 + size
		if len(b) < n {
			return 0, 0, nil
		}
	}
	return n, b[3], b[4:n]
}

func (w *mysqlWire) request(b []byte) (n int, answered bool, err error) {
	n, number, body := mysqlPacket(b)
	if n == 0 {
		return 0, false, nil
	}
	if !w.ready {
		if len(body) < 4 {
			return 0, false, errors.New("no greeting of a MySQL client")
		}
		flags := binary.LittleEndian.Uint32(body)
		if flags&(mysqlSSL|mysqlCompress) != 0 {
			return 0, false, errors.New("the connection is to be encrypted or compressed")
		}
		w.ready, w.short = true, flags&mysqlDeprecateEOF != 0
		return n, false, nil
	}
	if number != 0 || len(body) == 0 { // it goes on with the login, or with a file
		return n, false, nil
	}
	switch body[0] {
	case mysqlQuit, mysqlLongData, mysqlClose:
		return n, false, nil
	}
	w.command, w.results, w.left = body[0], false, 0
	return n, true, nil
}

func (w *mysqlWire) reply(b []byte) (n int, last bool, err error) {
	n, _, body := mysqlPacket(b)
	if n == 0 || w.command == 0 || len(body) == 0 {
		return n, false, nil
	}
	return n, w.last(body), nil
}

// last says whether a packet ends the answer to the command.
func (w *mysqlWire) last(body []byte) bool {
	const ok, file, end, failed = 0x00, 0xfb, 0xfe, 0xff
	switch {
	case w.left > 0:
		w.left--
		return w.left == 0
	case body[0] == failed:
		return true
	case w.results:
		// A row can start with the marker's byte too, but is longer then.
		if body[0] != end || len(body) >= 9 && (!w.short || len(body) >= 1<<24-1) {
			return false
		}
		if w.ends--; w.ends > 0 {
			return false
		}
		w.results = false
		return w.status(body)&mysqlMoreResults == 0
	case w.command == mysqlPrepare && len(body) >= 9:
		columns, params := int(binary.LittleEndian.Uint16(body[5:])), int(binary.LittleEndian.Uint16(body[7:]))
		for _, n := range []int{columns, params} {
			if w.left += n; n > 0 && !w.short {
				w.left++
			}
		}
		return w.left == 0
	case body[0] == ok, body[0] == end && len(body) < 9:
		return w.status(body)&mysqlMoreResults == 0
	case body[0] == file:
		return false
	}
	w.results, w.ends = true, 2
	if w.short {
		w.ends = 1
	}
	return false
}

// status reads the flags of a packet that ends a result.
func (w *mysqlWire) status(body []byte) uint16 {
	rest := body[1:]
	if body[0] == 0 || w.short { // two numbers of variable length come first
		rest = skipNumber(skipNumber(rest))
	} else if len(rest) >= 2 { // the count of warnings
		rest = rest[2:]
	}
	if len(rest) < 2 {
		return 0
	}
	return binary.LittleEndian.Uint16(rest)
}

func skipNumber(b []byte) []byte {
	size := 1
	if len(b) > 0 {
		switch b[0] {
		case 0xfc:
			size = 3
		case 0xfd:
			size = 4
		case 0xfe:
			size = 9
		}
	}
	return b[min(size, len(b)):]
}

func mysqlStatement(request []byte) (text string, runs bool) {
	n, _, body := mysqlPacket(request)
	if n == 0 || len(body) == 0 {
		return "", false
	}
	switch body[0] {
	case mysqlQuery:
		return string(body[1:]), true
	case mysqlExecute:
		return "", true
	}
	return "", false
}
