package servers

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Kind is a kind of server, by the name that ONCEPIPE_SKIP uses.
type Kind string

// The kinds of servers. MySQL is a MariaDB server.
const (
	Postgres Kind = "postgres"
	MySQL    Kind = "mysql"
	Redis    Kind = "redis"
)

// SkipEnv is the environment variable that names, with commas between them, the
// kinds to do without.
const SkipEnv = "ONCEPIPE_SKIP"

// Kinds lists all kinds.
func Kinds() []Kind { return []Kind{Postgres, MySQL, Redis} }

// Env is the environment variable that holds the address of a server of this
// kind, in the form of [Server.DSN].
func (k Kind) Env() string { return "ONCEPIPE_" + strings.ToUpper(string(k)) }

// Skipped lists the kinds that ONCEPIPE_SKIP names. An unknown name is an error:
// it could be a misspelt one.
func Skipped() ([]Kind, error) {
	var list []Kind
	for name := range strings.SplitSeq(os.Getenv(SkipEnv), ",") {
		k := Kind(strings.TrimSpace(name))
		switch {
		case k == "":
		case !slices.Contains(Kinds(), k):
			return nil, fmt.Errorf("%s names %q, which is none of %v", SkipEnv, k, Kinds())
		default:
			list = append(list, k)
		}
	}
	return list, nil
}

// recipe is how a kind of server is made. Nobody changes one.
type recipe struct {
	pkg      string         // Debian's package
	service  string         // the service that the package may start when it is installed
	account  string         // whom to run it as when we are root; "" for ourselves
	programs []string       // what must be found
	quit     syscall.Signal // ends all of it at once

	// initialize is the command that fills a folder's data, nil where none is
	// needed, and serve the one that serves it. The first word is one of programs.
	initialize func(folder string) []string
	serve      func(folder, port string, o Options) []string

	dsn func(addr string) string
	// ask connects, makes what the DSN needs, and returns the folder that the server
	// says it serves.
	ask func(ctx context.Context, addr string) (folder string, err error)
	// release gives back what a killed server left outside its folder.
	release func(folder string) error
}

func (k Kind) recipe() (recipe, error) {
	switch k {
	case Postgres:
		return postgres, nil
	case MySQL:
		return mariadb, nil
	case Redis:
		return redis, nil
	}
	return recipe{}, fmt.Errorf("no kind of server is called %q", k)
}

// settings turns settings into arguments, in a fixed order.
func settings(o Options, form func(name, value string) []string) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		args = append(args, form(name, o.Settings[name])...)
	}
	return args
}
