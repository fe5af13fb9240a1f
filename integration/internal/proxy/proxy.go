// Package proxy stands between a client and its database server and loses what a
// network loses: requests, replies, time. It follows the protocols of PostgreSQL,
// MySQL and Redis, so that a test can say at which request and on which side of
// it: a connection cut before a commit, or after it with the reply lost.
//
//	p, err := proxy.New(proxy.Postgres, addr, seed)
//	p.Set(proxy.Fault{Match: proxy.Postgres.Commit, When: proxy.After, Probability: 0.1})
//
// The connections must not be encrypted or compressed.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// When says on which side of a request a fault is.
type When int

// Before: the server has seen nothing of the request. After: the server's whole
// reply has arrived here, and the client has seen nothing of it.
const (
	Before When = iota
	After
)

// Action is what a fault does.
type Action int

const (
	// Cut closes the connection on both sides.
	Cut Action = iota
	// Delay lets the request or the reply wait, and go on then. A request goes on
	// to the server even if its client has closed the connection meanwhile, as one
	// does that is late in a network.
	Delay
	// Stall lets nothing through any more, until the client closes the connection.
	Stall
)

// Fault is a rule. The zero value cuts the connection before every request,
// those that open a session included.
type Fault struct {
	// Match chooses the requests; nil is all of them. It is called from several
	// goroutines, with the bytes of one whole request as the protocol has them (for
	// PostgreSQL: all messages up to a Query or Sync), which it must not keep. The
	// methods of Protocol are such functions.
	Match func(request []byte) bool

	When   When
	Action Action
	Delay  time.Duration // of the action Delay

	// Probability is how often it acts on a match; 0 means always.
	Probability float64

	// Times is how often it acts at most; 0 means no limit.
	Times int
}

// Counts is what a proxy has done.
type Counts struct {
	Connections int // accepted
	Requests    int // passed on, or not because of a fault
	Before      Actions
	After       Actions
}

// Actions counts faults by what they did.
type Actions struct{ Cut, Delay, Stall int }

// Total is the number of all.
func (a Actions) Total() int { return a.Cut + a.Delay + a.Stall }

// Proxy passes connections on to a server. Its methods may be called from
// several goroutines.
type Proxy struct {
	protocol Protocol
	target   string
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	faults []Fault
	counts Counts
	conns  map[*conn]bool
	closed bool
	err    error // the first of a connection that couldn't be followed
}

// New starts a proxy for the server at target (host:port). It passes everything
// on until Set is called. seed chooses which matches meet a fault that has a
// Probability. The caller owes it a call of Close.
func New(protocol Protocol, target string, seed uint64) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		protocol: protocol, target: target, listener: l, cancel: cancel,
		random: rand.New(rand.NewPCG(seed, 0)), conns: map[*conn]bool{},
	}
	p.running.Go(func() { p.accept(ctx) })
	return p, nil
}

// Addr is the host and port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set replaces the faults, for requests from now on. The first one that matches
// a request and is lucky acts on it.
func (p *Proxy) Set(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = slices.Clone(faults)
	// A limit that is used up looks the same as no limit.
	for i := range p.faults {
		if p.faults[i].Times <= 0 {
			p.faults[i].Times = -1
		}
	}
}

// Counts returns what was done so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Close closes all connections and returns when nothing of the proxy runs any
// more. It may be called again. Its error tells of a connection that the proxy
// had to close because it couldn't follow the protocol: the test has seen a fault
// that nobody asked for.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	if errors.Is(err, net.ErrClosed) { // by an earlier Close
		err = nil
	}
	p.mu.Lock()
	p.closed = true
	open := p.conns
	p.conns = nil
	p.mu.Unlock()
	for c := range open {
		c.close()
	}
	p.running.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(err, p.err)
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.fail(fmt.Errorf("accept: %w", err))
			}
			return
		}
		p.running.Go(func() { p.serve(ctx, client) })
	}
}

// serve passes one connection on. Where the server is down the client finds its
// connection closed.
func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	c := &conn{proxy: p, client: client, server: server, wire: p.protocol.wire(), done: make(chan struct{})}
	defer c.close()
	if !p.add(c) {
		return
	}
	defer p.remove(c)
	replies := make(chan struct{})
	go func() {
		defer close(replies)
		c.passReplies()
	}()
	c.passRequests()
	<-replies
}

func (p *Proxy) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = true
	p.counts.Connections++
	return true
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// pick returns the fault for a request, nil for none.
func (p *Proxy) pick(request []byte) *Fault {
	p.mu.Lock()
	faults := p.faults
	p.counts.Requests++
	p.mu.Unlock()
	for i := range faults {
		if faults[i].Match != nil && !faults[i].Match(request) {
			continue
		}
		if f := p.draw(faults, i); f != nil {
			return f
		}
	}
	return nil
}

// draw decides whether a fault that matches acts.
func (p *Proxy) draw(faults []Fault, i int) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &faults[i]
	if f.Times == 0 || f.Probability > 0 && p.random.Float64() >= f.Probability {
		return nil
	}
	if f.Times > 0 {
		f.Times--
	}
	chosen := *f
	return &chosen
}

// count notes that a fault acts.
func (p *Proxy) count(f *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	side := &p.counts.Before
	if f.When == After {
		side = &p.counts.After
	}
	switch f.Action {
	case Cut:
		side.Cut++
	case Delay:
		side.Delay++
	case Stall:
		side.Stall++
	}
}
