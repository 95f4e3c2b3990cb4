package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/afterwrite/afterwrite/events"
)

// MaxFileBytes bounds a hook file and the profiles file.
const MaxFileBytes = 1 << 20

// File is one file as it was read.
type File struct {
	// Name says where it came from, in problems, and by its ending whether it is JSON.
	Name string
	Data []byte
}

// digest is what a refusal of the file is recorded under.
func (f File) digest() string { return events.SHA256(f.Data) }

// Files is everything that is installed.
type Files struct {
	Hooks    []File
	Profiles File
}

// ReadFiles reads hook files and the profiles file. A hook path that is a directory stands for the files in it that
// end in .yaml, .yml or .json and do not start with a dot; directories in it are not entered. The error names every
// path that could not be read.
func ReadFiles(hooks []string, profiles string) (Files, error) {
	var files Files
	var errs []error
	for _, name := range hooks {
		read, err := readHooks(name)
		errs = append(errs, err)
		files.Hooks = append(files.Hooks, read...)
	}
	data, err := os.ReadFile(profiles)
	errs = append(errs, err)
	files.Profiles = File{Name: profiles, Data: data}
	if err := errors.Join(errs...); err != nil {
		return Files{}, fmt.Errorf("registry: %w", err)
	}
	return files, nil
}

// ReadFS is [ReadFiles] for the hook files of one directory of a file system.
func ReadFS(fsys fs.FS, hooks, profiles string) (Files, error) {
	read, hooksErr := readDir(fsys, hooks)
	data, profilesErr := fs.ReadFile(fsys, profiles)
	if err := errors.Join(hooksErr, profilesErr); err != nil {
		return Files{}, fmt.Errorf("registry: %w", err)
	}
	return Files{Hooks: read, Profiles: File{Name: profiles, Data: data}}, nil
}

func readHooks(name string) ([]File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		data, err := os.ReadFile(name)
		return []File{{Name: name, Data: data}}, err
	}
	files, err := readDir(os.DirFS(name), ".")
	for i := range files {
		files[i].Name = filepath.Join(name, files[i].Name)
	}
	return files, err
}

func readDir(fsys fs.FS, dir string) ([]File, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if !isHookFile(entry.Name()) {
			continue
		}
		// A mounted config map holds links, so the entry itself does not say whether it is a directory.
		info, err := fs.Stat(fsys, name)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			continue
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: name, Data: data})
	}
	return files, nil
}

func isHookFile(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}
