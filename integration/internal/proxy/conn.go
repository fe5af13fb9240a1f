package proxy

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// wire finds the borders in the two streams of one connection. It isn't for
// concurrent use.
type wire interface {
	// request returns the length of the first request in b, 0 while it isn't whole,
	// and whether the server answers it.
	request(b []byte) (n int, answered bool, err error)
	// reply returns the length of the first piece of a reply in b, 0 while it isn't
	// whole, and whether it is the last piece of the answer to a request.
	reply(b []byte) (n int, last bool, err error)
}

// conn is one connection, from the client through us to the server.
type conn struct {
	proxy          *Proxy
	client, server net.Conn
	done           chan struct{} // closed with the connection
	once           sync.Once

	mu   sync.Mutex
	wire wire
	due  []*Fault // for each request that the server still has to answer; nil for none
}

// close closes both sides. The error of a second close means nothing.
func (c *conn) close() {
	c.once.Do(func() {
		close(c.done)
		c.client.Close()
		c.server.Close()
	})
}

// passRequests passes on what the client sends until one side closes.
func (c *conn) passRequests() {
	defer c.close()
	var buf []byte
	for {
		for {
			n, answered, err := c.request(buf)
			if err != nil {
				c.proxy.fail(fmt.Errorf("follow a client: %w", err))
				return
			}
			if n == 0 {
				break
			}
			if !c.passRequest(buf[:n], answered) {
				return
			}
			buf = buf[n:]
		}
		var err error
		if buf, err = readMore(c.client, buf); err != nil {
			return
		}
	}
}

func (c *conn) request(b []byte) (n int, answered bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wire.request(b)
}

// passRequest says whether the connection goes on.
func (c *conn) passRequest(request []byte, answered bool) bool {
	if answered {
		fault := c.proxy.pick(request)
		if fault != nil && fault.When == Before {
			if !c.act(fault) {
				return false
			}
			fault = nil
		}
		c.mu.Lock()
		c.due = append(c.due, fault)
		c.mu.Unlock()
	}
	_, err := c.server.Write(request)
	return err == nil
}

// passReplies passes on what the server sends until one side closes. A reply
// whose request has a fault is held back until all of it is there.
func (c *conn) passReplies() {
	defer c.close()
	var buf []byte
	held := 0
	for {
		for {
			n, last, fault, err := c.reply(buf[held:])
			if err != nil {
				c.proxy.fail(fmt.Errorf("follow a server: %w", err))
				return
			}
			if n == 0 {
				break
			}
			held += n
			if fault != nil && !last {
				continue
			}
			if fault != nil && !c.act(fault) {
				return
			}
			if _, err := c.client.Write(buf[:held]); err != nil {
				return
			}
			buf, held = buf[held:], 0
		}
		var err error
		if buf, err = readMore(c.server, buf); err != nil {
			return
		}
	}
}

// reply finds the first piece of a reply and the fault that holds it back.
func (c *conn) reply(b []byte) (n int, last bool, fault *Fault, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, last, err = c.wire.reply(b)
	if n > 0 && len(c.due) > 0 {
		fault = c.due[0]
		if last {
			c.due = c.due[1:]
		}
	}
	return n, last, fault, err
}

// act does what a fault does and says whether the connection goes on.
func (c *conn) act(f *Fault) bool {
	c.proxy.count(f)
	switch f.Action {
	case Delay:
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-c.done:
		}
	case Stall:
		if f.When == Before {
			// The caller is the one that reads from the client, and would know that the
			// client has closed. The end is all that we wait for.
			_, _ = io.Copy(io.Discard, c.client)
		} else {
			<-c.done
		}
	}
	return false
}

// readMore appends what there is to read.
func readMore(r io.Reader, buf []byte) ([]byte, error) {
	const chunk = 16 << 10
	if cap(buf)-len(buf) < chunk {
		buf = slices.Grow(slices.Clip(buf), chunk)
	}
	n, err := r.Read(buf[len(buf):cap(buf)])
	return buf[:len(buf)+n], err
}
