package events

import "github.com/go-json-experiment/json/jsontext"

// BoundaryRule names the rule by which something is not public-safe; "" is public-safe.
// It is the reason of an input_boundary_rejected record.
type BoundaryRule string

// Boundary rules.
const (
	// BoundaryFlag: a flag says that private material was recorded.
	BoundaryFlag BoundaryRule = "boundary_flag"
	// BoundaryNotOpaque: not an opaque id, and nothing more precise below applies.
	BoundaryNotOpaque BoundaryRule = "not_opaque"
	// BoundaryURL: a URL.
	BoundaryURL BoundaryRule = "url"
	// BoundaryPath: an absolute, home, Windows or UNC path.
	BoundaryPath BoundaryRule = "path"
	// BoundaryEmail: an e-mail address.
	BoundaryEmail BoundaryRule = "email"
	// BoundaryCredential: the shape of a credential.
	BoundaryCredential BoundaryRule = "credential"
	// BoundaryProse: prose or text of several lines.
	BoundaryProse BoundaryRule = "prose"
)

// Scan gives the rule that s breaks.
func Scan(s string) BoundaryRule { return "" }

// ScanJSON scans every string and member name of value, which must be valid JSON.
func ScanJSON(value jsontext.Value) BoundaryRule { return "" }

// CheckBoundary gives the rule by which the input, as assembled, is not public-safe.
func (in *HookInput) CheckBoundary() BoundaryRule {
	_, rule := in.outsideBoundary()
	return rule
}

// CheckBoundary gives the rule that a string of the intent breaks.
func (i *Intent) CheckBoundary() BoundaryRule { return "" }

func (in *HookInput) outsideBoundary() (member string, rule BoundaryRule) { return "", "" }
