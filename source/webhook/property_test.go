package webhook_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
	"pgregory.net/rapid"
)

// bubble runs f, whose error fails rt, in a bubble. What f needs of rt has to be
// drawn before.
func bubble(t *testing.T, rt *rapid.T, f func() error) {
	var err error
	synctest.Test(t, func(*testing.T) { err = f() })
	if err != nil {
		rt.Fatal(err)
	}
}

const (
	modelPending   = 3
	modelAdmitWait = 4 * time.Second
	modelMaxHold   = 9 * time.Second
)

// step is one thing that happens to the source, alone: the model knows exactly
// what must follow.
type step struct {
	kind    string
	n       int // which of the requests, or how many seconds
	outcome oncepipe.Outcome
}

// modelCall is a request with what the model thinks of it.
type modelCall struct {
	*call
	name    string
	arrived time.Time
	state   string // queued, admitted or answered
	code    int
	text    string
}

// model drives a source and says what it must do.
type model struct {
	src       *webhook.Source
	run       context.Context // nil outside of a run
	stop      func()
	receiving bool // a Receive is under way
	got       chan delivery
	calls     []*modelCall
	held      map[string]delivery
	want      webhook.Stats
}

func (m *model) answer(c *modelCall, code int, text string) {
	if c.state == "queued" {
		m.want.Pending--
	}
	if c.state == "admitted" {
		m.want.Held--
	}
	c.state, c.code, c.text = "answered", code, text
}

func (m *model) in(state string) []*modelCall {
	var in []*modelCall
	for _, c := range m.calls {
		if c.state == state {
			in = append(in, c)
		}
	}
	return in
}

// admit is called when a Receive and a queued request meet.
func (m *model) admit(c *modelCall) {
	c.state = "admitted"
	m.receiving = false
	m.want.Pending--
	m.want.Held++
	m.want.Admitted++
}

func (m *model) send() {
	c := &modelCall{name: strconv.Itoa(len(m.calls)), arrived: time.Now()}
	m.calls = append(m.calls, c)
	c.call = send(m.src, c.name)
	switch {
	case m.run == nil:
		m.want.Refused++
		m.answer(c, 503, "pipeline is not running")
	case m.want.Pending == modelPending:
		m.want.Refused++
		m.answer(c, 503, "pipeline is full")
	default:
		c.state = "queued"
		m.want.Pending++
		if m.receiving {
			m.admit(c)
		}
	}
}

func (m *model) receive() {
	if m.run == nil || m.receiving {
		return
	}
	m.receiving = true
	run := m.run
	go func() {
		if d, err := m.src.Receive(run); err == nil {
			m.got <- d
		}
	}()
	if queued := m.in("queued"); len(queued) > 0 {
		m.admit(queued[0])
	}
}

func (m *model) leave(n int) {
	c := m.calls[n%len(m.calls)]
	switch c.state {
	case "queued":
		m.want.Withdrawn++
		m.answer(c, 503, "sender has left")
	case "admitted":
		m.want.Unseen++
		m.answer(c, 503, "sender has left")
	}
	c.leave()
}

func (m *model) settle(n int, o oncepipe.Outcome) error {
	c := m.calls[n%len(m.calls)]
	d, ok := m.held[c.name]
	if !ok {
		return nil
	}
	if c.state == "admitted" {
		m.answer(c, webhook.DefaultStatus(oncepipe.Settlement{Outcome: o}), o.String())
	}
	return d.Settle(context.Background(), oncepipe.Settlement{Outcome: o})
}

func (m *model) sleep(seconds int) {
	time.Sleep(time.Duration(seconds) * time.Second)
	for _, c := range m.in("queued") {
		if time.Since(c.arrived) >= modelAdmitWait {
			m.want.Refused++
			m.answer(c, 503, "pipeline is full")
		}
	}
	for _, c := range m.in("admitted") {
		if time.Since(c.arrived) >= modelMaxHold {
			m.want.Late++
			m.answer(c, 503, "still in progress")
		}
	}
}

func (m *model) start() {
	if m.run == nil {
		m.want.Running = true
		m.run, m.stop = context.WithCancel(context.Background())
		m.receive()
	}
}

func (m *model) end() {
	if m.run == nil {
		return
	}
	m.stop()
	m.run, m.receiving, m.want.Running = nil, false, false
	for _, c := range m.in("queued") {
		m.want.Refused++
		m.answer(c, 503, "pipeline is not running")
	}
}

func (m *model) do(s step) error {
	switch s.kind {
	case "send":
		m.send()
	case "receive":
		m.receive()
	case "leave":
		m.leave(s.n)
	case "settle":
		return m.settle(s.n, s.outcome)
	case "sleep":
		m.sleep(s.n)
	case "start":
		m.start()
	case "end":
		m.end()
	}
	return nil
}

// check compares the source with the model once everything is at rest.
func (m *model) check() error {
	synctest.Wait()
	for len(m.got) > 0 {
		d := <-m.got
		m.held[string(d.Value.Body)] = d
	}
	if got := m.src.Stats(); got != m.want {
		return fmt.Errorf("stats %+v, want %+v", got, m.want)
	}
	for _, c := range m.calls {
		text := ""
		if c.answered() {
			text = strings.TrimSpace(c.Body.String())
		}
		switch {
		case c.answered() != (c.state == "answered"):
			return fmt.Errorf("request %s: answered is %v, but it is %s", c.name, c.answered(), c.state)
		case c.answered() && (c.Code != c.code || text != c.text || c.headers.Load() != 1):
			return fmt.Errorf("request %s: answer %d %q, want %d %q", c.name, c.Code, text, c.code, c.text)
		}
		if _, held := m.held[c.name]; !held && c.state == "admitted" {
			return fmt.Errorf("request %s was not handed over", c.name)
		}
	}
	if len(m.held) != int(m.want.Admitted) {
		return fmt.Errorf("%d deliveries, want %d", len(m.held), m.want.Admitted)
	}
	return nil
}

// Whatever happens to a source, one thing after the other, it does what the
// model says.
func TestModel(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		return step{
			kind: rapid.SampledFrom([]string{
				"send", "send", "send", "receive", "receive", "leave", "settle", "settle", "sleep", "start", "end",
			}).Draw(rt, "kind"),
			n:       rapid.IntRange(1, 8).Draw(rt, "n"),
			outcome: oncepipe.Outcome(rapid.IntRange(1, 6).Draw(rt, "outcome")),
		}
	}), 1, 60)
	rapid.Check(t, func(rt *rapid.T) {
		plan := steps.Draw(rt, "steps")
		bubble(t, rt, func() error {
			m := &model{
				src: webhook.New(webhook.Config{
					Pending: modelPending, AdmitWait: modelAdmitWait, MaxHold: modelMaxHold,
				}),
				got:  make(chan delivery, 100),
				held: map[string]delivery{},
			}
			// Before anything that may fail, so that a failure is not hidden by the
			// goroutines that it leaves in the bubble.
			defer func() {
				m.end()
				for _, c := range m.calls {
					c.leave()
				}
			}()
			m.start()
			if err := m.check(); err != nil {
				return err
			}
			for i, s := range plan {
				if len(m.calls) == 0 && (s.kind == "leave" || s.kind == "settle") {
					continue
				}
				if err := m.do(s); err != nil {
					return fmt.Errorf("step %d, %+v: %w", i, s, err)
				}
				if err := m.check(); err != nil {
					return fmt.Errorf("step %d, %+v: %w", i, s, err)
				}
			}
			return nil
		})
	})
}

// storm is a plan of things that happen at the same instants, truly at once.
type storm struct {
	senders []stormSender
	ends    []int // instants at which a run ends and the next one begins
	pauses  []int // of the receiver after each delivery: back-pressure
	maxHold int
	pending int
}

type stormSender struct {
	at, leaves, work int // instants; leaves 0: never
	outcome          oncepipe.Outcome
}

// stormCall is what is known of a request after the storm.
type stormCall struct {
	stormSender
	*call
	left      atomic.Int64 // tick after its sender had left
	delivered atomic.Int32
	settled   atomic.Bool // set before Settle is called
}

// At every instant a request is withdrawn, admitted or answered, and never two
// of these: however arrivals, hang-ups, Receive, settlements, time limits and the
// ends of runs meet.
func TestP30_Storm(t *testing.T) {
	instant := rapid.IntRange(0, 6)
	rapid.Check(t, func(rt *rapid.T) {
		plan := storm{
			senders: rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) stormSender {
				return stormSender{
					at:      instant.Draw(rt, "at"),
					leaves:  instant.Draw(rt, "leaves"),
					work:    instant.Draw(rt, "work"),
					outcome: oncepipe.Outcome(rapid.IntRange(1, 6).Draw(rt, "outcome")),
				}
			}), 1, 30).Draw(rt, "senders"),
			ends:    rapid.SliceOfN(rapid.IntRange(1, 3), 0, 4).Draw(rt, "ends"),
			pauses:  rapid.SliceOfN(rapid.IntRange(0, 2), 1, 5).Draw(rt, "pauses"),
			maxHold: instant.Draw(rt, "maxHold"),
			pending: rapid.IntRange(1, 8).Draw(rt, "pending"),
		}
		bubble(t, rt, plan.run)
	})
}

func (p storm) run() error {
	const instant = time.Second
	at := func(n int) time.Duration { return time.Duration(n) * instant }
	src := webhook.New(webhook.Config{
		Pending: p.pending, AdmitWait: 2 * instant, MaxHold: at(p.maxHold),
	})
	calls := make([]*stormCall, len(p.senders))
	for i, s := range p.senders {
		calls[i] = &stormCall{stormSender: s}
	}
	var tick atomic.Int64
	var faults sync.Map
	var settlers, senders sync.WaitGroup

	deliver := func(d delivery, before int64) {
		i, _ := strconv.Atoi(string(d.Value.Body))
		c := calls[i]
		if c.delivered.Add(1) != 1 {
			faults.Store(i, "delivered twice")
		}
		if left := c.left.Load(); left != 0 && left < before {
			faults.Store(i, "delivered after its sender had left")
		}
		settlers.Go(func() {
			time.Sleep(at(c.work))
			c.settled.Store(true)
			if err := d.Settle(context.Background(), oncepipe.Settlement{Outcome: c.outcome}); err != nil {
				faults.Store(i, err.Error())
			}
		})
	}

	over, end := context.WithCancel(context.Background())
	received := make(chan struct{})
	go func() {
		defer close(received)
		for run, n := 0, 0; over.Err() == nil; run++ {
			ctx, stop := context.WithCancel(over)
			if run < len(p.ends) {
				time.AfterFunc(at(p.ends[run]), stop)
			}
			for {
				before := tick.Add(1)
				d, err := src.Receive(ctx)
				if err != nil {
					break
				}
				deliver(d, before)
				time.Sleep(at(p.pauses[n%len(p.pauses)]))
				n++
			}
			stop()
		}
	}()
	for i, c := range calls {
		senders.Go(func() {
			time.Sleep(at(c.at))
			c.call = send(src, strconv.Itoa(i))
			if c.leaves == 0 {
				<-c.ended
				return
			}
			time.Sleep(at(c.leaves - 1)) // 0: at once
			c.leave()
			c.left.Store(tick.Add(1))
			<-c.ended
		})
	}
	senders.Wait()
	end()
	<-received
	settlers.Wait()
	return p.verify(src.Stats(), calls, &faults)
}

func (p storm) verify(got webhook.Stats, calls []*stormCall, faults *sync.Map) error {
	var fault error
	faults.Range(func(i, what any) bool {
		fault = fmt.Errorf("request %v: %v", i, what)
		return false
	})
	if fault != nil {
		return fault
	}
	var delivered uint64
	for i, c := range calls {
		was := c.delivered.Load() == 1
		if was {
			delivered++
		}
		text := strings.TrimSpace(c.Body.String())
		switch {
		case c.headers.Load() != 1:
			return fmt.Errorf("request %d: %d answers", i, c.headers.Load())
		case text == c.outcome.String():
			if want := webhook.DefaultStatus(oncepipe.Settlement{Outcome: c.outcome}); !was || !c.settled.Load() || c.Code != want {
				return fmt.Errorf("request %d: answer %d %s, delivered %v", i, c.Code, text, was)
			}
		case c.Code != 503:
			return fmt.Errorf("request %d: answer %d %s, outcome %v", i, c.Code, text, c.outcome)
		case text == "sender has left": // either is right
		case was != (text == "still in progress"):
			return fmt.Errorf("request %d: delivered %v, but told %s", i, was, text)
		}
	}
	if got.Pending != 0 || got.Held != 0 || got.Admitted != delivered ||
		got.Admitted+got.Refused+got.Withdrawn != uint64(len(calls)) {
		return fmt.Errorf("%+v after %d requests, %d delivered", got, len(calls), delivered)
	}
	return nil
}
