package webhook

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Config says what a Source accepts and how it answers. The zero value works.
// Its functions are called from the goroutines of the server, several at once.
type Config struct {
	// MaxBody is the largest body in bytes. Default 1 MiB.
	MaxBody int64

	// Methods are those that are accepted. Default POST.
	Methods []string

	// KeyHeader names the header that holds the key, for instance
	// "Idempotency-Key". Its value is taken as it is. A request without it, or with
	// two different values, is answered 400. Default none: the delivery has no key,
	// and KeyBy or Dedup set it.
	KeyHeader string

	// KeyOptional lets requests without KeyHeader in, with an empty key.
	KeyOptional bool

	// Key finds the key where a header alone doesn't tell it, and KeyHeader is then
	// not looked at. An error is answered 400 with its text, which should hold no
	// secrets; so this is also a place to check a signature. The key must follow
	// from the request alone: never random, never a clock. The body of r has been
	// read; Key must not change body, nor keep r.
	Key func(r *http.Request, body []byte) (string, error)

	// Pending is how many requests may be read or wait for Receive; one more is
	// answered 503 at once. So before admission there are never more than Pending
	// bodies in memory. Default 64.
	Pending int

	// AdmitWait is how long a request may wait for Receive once its body is read,
	// before it is answered 503. It has to cover the moments between two calls of
	// Receive, or a pipeline with room would refuse; longer than that it lets a
	// short back-pressure pass unseen. Default 1 s; negative: as long as the sender
	// and MaxHold allow.
	AdmitWait time.Duration

	// ReadTimeout is how long after its header the body may take, so that slow
	// senders can't keep the places of Pending. It is set as the connection's read
	// deadline, in place of http.Server.ReadTimeout: that one runs on after the
	// body, and net/http then takes its end for the sender's leaving. It also limits
	// how long net/http reads on before it sends the answer to a request that was
	// refused unread.
	// Default 10 s; negative: no limit but MaxHold and the server's own.
	ReadTimeout time.Duration

	// RetryAfter is the least that a 503 asks the sender to wait. The header has
	// whole seconds: fractions are rounded up, and it is at least 1. Default 1 s.
	RetryAfter time.Duration

	// MaxHold is when, counted from its header, a request is answered at the latest:
	// one that is not settled by then gets 503 while the work goes on. It should be
	// shorter than the sender's patience and http.Server.WriteTimeout. Default 0:
	// as long as the sender waits.
	MaxHold time.Duration

	// MaxRedelivery is for how long the sender may send a request again, for
	// instance 72 h; see oncepipe.RedeliveryLimiter. Default 0: not known.
	MaxRedelivery time.Duration

	// Status chooses the code for a settlement. It is not called for senders that
	// got another answer or have left. A code outside 200 to 599 is answered as 500;
	// a 2xx for Returned as 503, since nobody would have the request then. 429 and
	// 503 get the Retry-After header. Default DefaultStatus.
	Status func(oncepipe.Settlement) int
}

// Request is what a sender sent. It shares nothing with the *http.Request,
// which ends with its handler while the pipeline may go on.
type Request struct {
	Method     string
	URL        *url.URL
	Host       string
	Header     http.Header
	Body       []byte
	Key        string // the delivery's, by Config.KeyHeader or Config.Key; for Dedup
	RemoteAddr string
	Received   time.Time // when its handler was called
}

// withDefaults fills in the defaults and makes cfg the Source's own.
func (cfg Config) withDefaults() Config {
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 1 << 20
	}
	if len(cfg.Methods) == 0 {
		cfg.Methods = []string{http.MethodPost}
	}
	cfg.Methods = append([]string(nil), cfg.Methods...)
	if cfg.Pending <= 0 {
		cfg.Pending = 64
	}
	if cfg.AdmitWait == 0 {
		cfg.AdmitWait = time.Second
	}
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = 10 * time.Second
	}
	if cfg.RetryAfter <= 0 {
		cfg.RetryAfter = time.Second
	}
	if cfg.Status == nil {
		cfg.Status = DefaultStatus
	}
	return cfg
}

// key finds the key of r, or the text that tells the sender why it has none.
func (cfg *Config) key(r *http.Request, body []byte) (key, refusal string) {
	if cfg.Key != nil {
		key, err := cfg.Key(r, body)
		if err != nil {
			return "", err.Error()
		}
		return key, ""
	}
	if cfg.KeyHeader == "" {
		return "", ""
	}
	for _, v := range r.Header.Values(cfg.KeyHeader) {
		// Which of two keys is meant can't be told, and a proxy may think otherwise.
		if v != key && key != "" && v != "" {
			return "", "more than one value of header " + cfg.KeyHeader
		}
		if v != "" {
			key = v
		}
	}
	if key == "" && !cfg.KeyOptional {
		return "", "missing header " + cfg.KeyHeader
	}
	return key, ""
}

// allow is the value of the Allow header.
func (cfg *Config) allow() string { return strings.Join(cfg.Methods, ", ") }

// request copies what the pipeline may need of r.
func request(r *http.Request, body []byte, key string, received time.Time) Request {
	u := &url.URL{}
	if r.URL != nil {
		*u = *r.URL // a Userinfo is immutable
	}
	return Request{
		Method:     r.Method,
		URL:        u,
		Host:       r.Host,
		Header:     r.Header.Clone(),
		Body:       body,
		Key:        key,
		RemoteAddr: r.RemoteAddr,
		Received:   received,
	}
}
