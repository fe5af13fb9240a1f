package results

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Run is how data came to be.
type Run struct {
	Command string `json:"command"`
	Date    string `json:"date"`    // UTC
	Machine string `json:"machine"` // processor, cores, system, Go
	Partial bool   `json:"partial"` // cut short: only what had been measured is there
}

// NewRun is a run of a command, as one would type it, on this machine today.
func NewRun(command string) Run {
	return Run{
		Command: command,
		Date:    time.Now().UTC().Format(time.DateOnly),
		Machine: fmt.Sprintf("%s, %d cores, %s/%s, %s",
			processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()),
	}
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// Header is the paragraph below a document's title.
func (r Run) Header() string {
	short := ""
	if r.Partial {
		short = " " + cutShort
	}
	return fmt.Sprintf("Written by `%s` on %s (%s), not by hand: a test compares this page with the data files beside it.%s\n",
		r.Command, r.Date, r.Machine, short)
}

// Part is a piece of the run's document that another one may quote: where the run
// was cut short, it says so itself.
func (r Run) Part(name, text string) string {
	if r.Partial {
		text = cutShort + "\n\n" + text
	}
	return Part(name, text)
}

const cutShort = "**It was cut short: only a part is here.**"

// Context ends at Ctrl-C or SIGTERM. A second one ends the program.
func Context() (context.Context, func()) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
