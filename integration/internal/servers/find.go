package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programDirs are patterns for where programs are that a usual PATH lacks.
var programDirs = []string{"/usr/lib/postgresql/*/bin", "/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin", "/sbin", "/bin"}

// searchPath is what the programs find their own programs with.
func searchPath() string {
	return os.Getenv("PATH") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// find looks for the programs of a kind of server: on PATH, then where Debian
// puts them, the newest version first.
func find(r recipe) (map[string]string, error) {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	for _, pattern := range programDirs {
		match, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		slices.Reverse(match)
		dirs = append(dirs, match...)
	}
	path := map[string]string{}
	for _, name := range r.programs {
		i := slices.IndexFunc(dirs, func(dir string) bool {
			info, err := os.Stat(filepath.Join(dir, name))
			return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
		})
		if i < 0 {
			return nil, fmt.Errorf("%s is neither on PATH nor in %s: %w", name, strings.Join(programDirs, ", "), exec.ErrNotFound)
		}
		path[name] = filepath.Join(dirs[i], name)
	}
	return path, nil
}
