package events

// Ids are plain string aliases: they document intent and convert freely, and the codec checks their form.
type (
	// ReceiptIdentity is "pwr_sha256_" + 64 hex digits, see [Receipt.Identity].
	ReceiptIdentity = string
	// DispatchID is "pwh_sha256_" + 64 hex digits, see [DispatchIdentity].
	DispatchID = string
	// IntentID is "pwi_sha256_" + 64 hex digits, see [IntentIdentity].
	IntentID = string
	// Digest is "sha256_" + 64 hex digits over the canonical form of a whole document.
	Digest = string
	// HookID is the name of a hook, "capability.name".
	HookID = string
	// CapabilityID is the name of a capability.
	CapabilityID = string
	// IntentKind is the name of a kind of intent.
	IntentKind = string
	// ExecutorID is the name of an executor.
	ExecutorID = string
)

// Limits on the strings of the contract, in bytes.
const (
	MaxOpaqueID  = 256
	MaxEffectID  = 1024
	MaxName      = 96
	maxPolicyVer = 64
)

const hexDigest = 64

// IsOpaqueID reports whether s is an opaque id: ^[A-Za-z0-9][A-Za-z0-9._:-]{0,255}$.
func IsOpaqueID(s string) bool { return isOpaque(s, MaxOpaqueID) }

func isOpaque[T string | []byte](s T, limit int) bool {
	if len(s) == 0 || len(s) > limit || !isAlnum(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !isAlnum(c) && c != '.' && c != '_' && c != ':' && c != '-' {
			return false
		}
	}
	return true
}

// IsName reports whether s is a name: ^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$, at most [MaxName] bytes.
// A name is a NATS subject suffix as it stands.
func IsName(s string) bool { return isName(s) }

func isName[T string | []byte](s T) bool {
	if len(s) == 0 || len(s) > MaxName {
		return false
	}
	start := true
	for i := range len(s) {
		c := s[i]
		switch {
		case isLower(c):
			start = false
		case start:
			return false
		case c == '.':
			start = true
		case c != '_' && !isDigit(c):
			return false
		}
	}
	return !start
}

// IsPolicyVersion reports whether s is a policy version: ^[a-z0-9][a-z0-9_.-]{0,63}$.
func IsPolicyVersion(s string) bool {
	if s == "" || len(s) > maxPolicyVer || !isLower(s[0]) && !isDigit(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !isLower(c) && !isDigit(c) && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// IsDispatchID reports whether s has the form of a dispatch id.
func IsDispatchID(s string) bool { return isDigestOf(s, dispatchPrefix) }

// IsIntentID reports whether s has the form of an intent id.
func IsIntentID(s string) bool { return isDigestOf(s, intentPrefix) }

// IsDigest reports whether s has the form of a digest.
func IsDigest(s string) bool { return isDigestOf(s, digestPrefix) }

// IsSHA256 reports whether s is 64 lowercase hex digits.
func IsSHA256(s string) bool { return isDigestOf(s, "") }

func isDigestOf(s, prefix string) bool {
	if len(s) != len(prefix)+hexDigest || s[:len(prefix)] != prefix {
		return false
	}
	for i := len(prefix); i < len(s); i++ {
		if !isLowerHex(s[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool    { return '0' <= c && c <= '9' }
func isLower(c byte) bool    { return 'a' <= c && c <= 'z' }
func isUpper(c byte) bool    { return 'A' <= c && c <= 'Z' }
func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }

// isAlnum is asked of nearly every byte that passes, hence the table.
func isAlnum(c byte) bool { return alnum[c] }

var alnum = func() (table [256]bool) {
	for c := range table {
		table[c] = isDigit(byte(c)) || isLower(byte(c)) || isUpper(byte(c))
	}
	return table
}()
