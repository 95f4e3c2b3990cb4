package flags

// Installed says which files are installed.
type Installed struct {
	Hooks    []string `env:"AFTERWRITE_HOOKS" placeholder:"PATH" help:"Hook files, or directories of them; repeatable."`
	Profiles string   `env:"AFTERWRITE_PROFILES" placeholder:"FILE" help:"The profiles file: which hooks run, and under which ceilings."`
}

// Missing names the flags that were not given.
func (f Installed) Missing() []string {
	var missing []string
	if len(f.Hooks) == 0 {
		missing = append(missing, "--hooks")
	}
	if f.Profiles == "" {
		missing = append(missing, "--profiles")
	}
	return missing
}
