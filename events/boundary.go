package events

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// BoundaryRule names the rule by which something is not public-safe; "" is public-safe.
// It is the reason of an input_boundary_rejected record.
type BoundaryRule string

// Boundary rules. Where a string breaks several of the scan's rules, the one declared first here is given.
const (
	// BoundaryFlag: a flag says that private material was recorded.
	BoundaryFlag BoundaryRule = "boundary_flag"
	// BoundaryURL: a URL, "www." and "mailto:" included.
	BoundaryURL BoundaryRule = "url"
	// BoundaryPath: an absolute, home, Windows or UNC path.
	BoundaryPath BoundaryRule = "path"
	// BoundaryEmail: an e-mail address.
	BoundaryEmail BoundaryRule = "email"
	// BoundaryCredential: the shape of a credential.
	BoundaryCredential BoundaryRule = "credential"
	// BoundaryProse: words with spaces, text of several lines, or characters that are not text.
	BoundaryProse BoundaryRule = "prose"
	// BoundaryNotOpaque: not an opaque id where one is due, and nothing more precise above applies.
	BoundaryNotOpaque BoundaryRule = "not_opaque"
)

var boundaryRules = [...]BoundaryRule{
	BoundaryFlag, BoundaryURL, BoundaryPath, BoundaryEmail, BoundaryCredential, BoundaryProse, BoundaryNotOpaque,
}

// BoundaryRules are all boundary rules, in their order.
func BoundaryRules() []BoundaryRule { return slices.Clone(boundaryRules[:]) }

// CheckBoundary gives the rule by which the input, as assembled, is not public-safe.
func (in *HookInput) CheckBoundary() BoundaryRule {
	_, rule := in.outsideBoundary()
	return rule
}

// outsideBoundary also names the member that breaks the rule.
func (in *HookInput) outsideBoundary() (member string, rule BoundaryRule) {
	if b := in.Boundary; b != (Boundary{}) {
		return "boundary", BoundaryFlag
	}
	if s := in.Source; s != nil {
		if rule := scanID(s.EffectID, MaxEffectID); rule != "" {
			return "source.effect_id", rule
		}
		for _, id := range [...]struct{ member, value string }{
			{"source.agent_id", s.AgentID},
			{"source.goal_id", s.GoalID},
			{"source.receipt_id", s.ReceiptID},
			{"source.state_revision", s.StateRevision},
			{"source.step_kind", s.StepKind},
			{"source.todo_id", s.TodoID},
			{"source.turn_instance_id", s.TurnInstanceID},
		} {
			if rule := scanID(id.value, MaxOpaqueID); rule != "" {
				return id.member, rule
			}
		}
	}
	if p := in.Projection; p != nil {
		if rule := scanID(string(p.Transition), MaxOpaqueID); rule != "" {
			return "projection.transition", rule
		}
		for i, ref := range p.FactRefs {
			if rule := scanID(ref, MaxOpaqueID); rule != "" {
				return "projection.fact_refs[" + strconv.Itoa(i) + "]", rule
			}
		}
	}
	return "", ""
}

func scanID(id string, limit int) BoundaryRule {
	if rule := Scan(id); rule != "" {
		return rule
	}
	if !isOpaque(id, limit) {
		return BoundaryNotOpaque
	}
	return ""
}

// CheckBoundary gives the rule that a string of the intent, or a member name of its payload, breaks.
func (i *Intent) CheckBoundary() BoundaryRule {
	for _, s := range [...]string{
		i.CapabilityID, i.FailurePolicy, i.HookID, i.IntentID, i.IntentKind, i.Operation, i.PolicyVersion,
		i.SchemaVersion, i.SourceDispatchID,
	} {
		if rule := Scan(s); rule != "" {
			return rule
		}
	}
	for _, scope := range i.RequestedWriteScope {
		if rule := Scan(scope); rule != "" {
			return rule
		}
	}
	return ScanJSON(i.Payload)
}

// ScanJSON scans every string and member name of value, which must be valid JSON.
func ScanJSON(value jsontext.Value) BoundaryRule {
	text := string(value)
	var unquoted []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '"' {
			continue
		}
		start, escaped := i, false
		for i++; i < len(text) && text[i] != '"'; i++ {
			if text[i] == '\\' {
				escaped = true
				i++
			}
		}
		if i >= len(text) {
			return BoundaryProse // an open string: not JSON, so nothing vouches for it
		}
		s := text[start+1 : i]
		if escaped {
			var err error
			if unquoted, err = jsontext.AppendUnquote(unquoted[:0], text[start:i+1]); err != nil {
				return BoundaryProse
			}
			s = string(unquoted)
		}
		if rule := Scan(s); rule != "" {
			return rule
		}
	}
	return ""
}

// Scan gives the rule that s breaks: whether it holds a URL, a path, an e-mail address, the shape of a credential,
// or prose. It knows shapes only, so an identifier that merely speaks of such a thing, as token_bucket_rev, passes.
func Scan(s string) BoundaryRule {
	var found finding
	spaceless := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case isAlnum(c):
			if opens(s[i:]) {
				found.add(scanWord(s[i:]))
			}
			for i+1 < len(s) && isAlnum(s[i+1]) {
				i++ // what begins within a word is none
			}
		case c <= ' ' || c == 0x7f:
			found.add(BoundaryProse)
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 || unicode.In(r, unicode.C, unicode.Z) {
				found.add(BoundaryProse)
			}
			if unicode.In(r, spacelessScripts...) {
				spaceless++
			}
			i += size - 1
		case c != '_' && c != '.':
			found.add(scanMark(s, i))
		}
		if found == finding(BoundaryURL) {
			return BoundaryURL // nothing is declared before it
		}
	}
	if spaceless >= leastSpaceless {
		found.add(BoundaryProse)
	}
	return BoundaryRule(found)
}

// Some scripts write sentences without spaces: this many of their letters are prose.
const leastSpaceless = 4

var spacelessScripts = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

// finding keeps, of the rules found broken, the one declared first.
type finding BoundaryRule

func (f *finding) add(rule BoundaryRule) {
	if rule == "" || BoundaryRule(*f) == rule {
		return
	}
	for _, first := range boundaryRules {
		if BoundaryRule(*f) == first {
			return
		}
		if rule == first {
			*f = finding(rule)
			return
		}
	}
}

// scanMark asks what the mark at i makes of its surroundings.
func scanMark(s string, i int) BoundaryRule {
	switch s[i] {
	case ':':
		switch {
		case strings.HasPrefix(s[i:], "://") && i > 0 && isSchemeByte(s[i-1]):
			return BoundaryURL
		case isDriveAt(s, i):
			return BoundaryPath
		case assignsSecret(s, i):
			return BoundaryCredential
		}
	case '=':
		if assignsSecret(s, i) {
			return BoundaryCredential
		}
	case '/', '\\', '~', '$', '%':
		if beginsPath(s, i) {
			return BoundaryPath
		}
	case '@':
		if isEmailAt(s, i) {
			return BoundaryEmail
		}
	case '-':
		if strings.HasPrefix(s[i:], "-----BEGIN") {
			return BoundaryCredential
		}
	}
	return ""
}

// scanWord asks whether the word that s begins with opens a URL or a credential.
func scanWord(s string) BoundaryRule {
	switch s[0] | 0x20 {
	case 'w':
		if hasPrefixFold(s, "www.") && len(s) > len("www.") && isAlnum(s[len("www.")]) {
			return BoundaryURL
		}
	case 'm':
		if hasPrefixFold(s, "mailto:") && len(s) > len("mailto:") {
			return BoundaryURL
		}
	case 'b':
		if isAuthorization(s, "bearer") || isAuthorization(s, "basic") {
			return BoundaryCredential
		}
	case 'e':
		if isJWT(s) {
			return BoundaryCredential
		}
	}
	for _, shape := range shapesBy[s[0]] {
		if shape.matches(s) {
			return BoundaryCredential
		}
	}
	return ""
}

// A tokenShape is how an issuer's secrets begin and go on, as the issuer documents it. The least length is below
// what is issued, so that a shortened secret is refused too.
type tokenShape struct {
	prefix string // '?' stands for any letter
	tail   func(byte) bool
	least  int
	// random: the tail must hold twelve letters and digits in a row, not all letters of one case, because the prefix
	// alone could begin an ordinary identifier.
	random bool
}

var tokenShapes = []tokenShape{
	{prefix: "AKIA", tail: isUpperOrDigit, least: 16}, // AWS access key
	{prefix: "ASIA", tail: isUpperOrDigit, least: 16}, // AWS temporary access key
	{prefix: "AIza", tail: isBase64URL, least: 30},    // Google API key
	{prefix: "gh?_", tail: isAlnum, least: 16},        // GitHub tokens
	{prefix: "github_pat_", tail: isBase64URL, least: 16},
	{prefix: "glpat-", tail: isBase64URL, least: 16}, // GitLab personal access token
	{prefix: "sk-", tail: isBase64URL, least: 16, random: true},
	{prefix: "sk_live_", tail: isAlnum, least: 16}, // Stripe
	{prefix: "rk_live_", tail: isAlnum, least: 16},
	{prefix: "xox?-", tail: isBase64URL, least: 10},      // Slack tokens
	{prefix: "S?", tail: isUpperOrDigit, least: 56},      // NATS seed
	{prefix: "ya29.", tail: isBase64URL, least: 16},      // Google OAuth access token
	{prefix: "npm_", tail: isAlnum, least: 30},           // npm access token
	{prefix: "hf_", tail: isAlnum, least: 30},            // Hugging Face access token
	{prefix: "dop_v1_", tail: isLowerOrDigit, least: 40}, // DigitalOcean access token
}

// shapesBy are the token shapes by their first letter.
var shapesBy = func() (by [256][]*tokenShape) {
	for i := range tokenShapes {
		first := tokenShapes[i].prefix[0]
		by[first] = append(by[first], &tokenShapes[i])
	}
	return by
}()

// openings holds, for each first letter of what scanWord knows, a bit for each second letter, in either case.
var openings = func() (second [256]uint32) {
	const anyLetter = 1<<26 - 1
	for _, known := range []string{"www", "WWW", "mailto", "MAILTO", "bearer", "BEARER", "basic", "BASIC", "ey"} {
		second[known[0]] |= letterBit(known[1])
	}
	for _, shape := range tokenShapes {
		if c := shape.prefix[1]; c == '?' {
			second[shape.prefix[0]] |= anyLetter
		} else {
			second[shape.prefix[0]] |= letterBit(c)
		}
	}
	return second
}()

func letterBit(c byte) uint32 { return 1 << ((c | 0x20) - 'a') }

// opens reports whether the word that s begins with may be one that scanWord knows, by its first two letters. Nearly no
// word may.
func opens(s string) bool {
	return openings[s[0]] != 0 && len(s) > 1 && isLetter(s[1]) && openings[s[0]]&letterBit(s[1]) != 0
}

func (t *tokenShape) matches(s string) bool {
	if len(s) < len(t.prefix)+t.least {
		return false
	}
	for i := range len(t.prefix) {
		if c := t.prefix[i]; c == '?' && !isLetter(s[i]) || c != '?' && c != s[i] {
			return false
		}
	}
	tail := leading(s[len(t.prefix):], t.tail)
	return len(tail) >= t.least && (!t.random || holdsRandom(tail))
}

func holdsRandom(s string) bool {
	for len(s) > 0 {
		run := leading(s, isAlnum)
		if len(run) >= 12 && run != strings.ToLower(run) || len(run) >= 12 && strings.ContainsAny(run, "0123456789") {
			return true
		}
		s = s[min(len(s), len(run)+1):]
	}
	return false
}

// isAuthorization: the scheme, blanks, and a token that is no plain word.
func isAuthorization(s, scheme string) bool {
	if !hasPrefixFold(s, scheme) {
		return false
	}
	rest := s[len(scheme):]
	value := strings.TrimLeft(rest, " \t")
	if len(value) == len(rest) {
		return false
	}
	token := leading(value, func(c byte) bool { return isBase64URL(c) || strings.IndexByte("._~+/=", c) >= 0 })
	return len(token) >= 20 || len(token) >= 8 && strings.ContainsAny(token[1:], "0123456789=ABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

// isJWT: two JSON objects in base64url with a dot between them, and a dot after.
func isJWT(s string) bool {
	for range 2 {
		if !strings.HasPrefix(s, "eyJ") {
			return false
		}
		part := leading(s, isBase64URL)
		if len(part) < 8 || len(part) == len(s) || s[len(part)] != '.' {
			return false
		}
		s = s[len(part)+1:]
	}
	return true
}

// Names of secrets without their separators. The first ones are secret whatever stands around them; the others
// are also ordinary words, so that goal:token:turn passes and token=… does not.
var (
	secretNames = []string{
		"password", "passwd", "passphrase", "pwd", "apikey", "accesskey", "secretkey", "privatekey", "clientsecret",
		"accesstoken", "refreshtoken", "authtoken",
	}
	secretWords = []string{"secret", "token", "authorization", "credential", "credentials", "cookie", "bearer"}
)

// assignsSecret reports whether the mark at i, ':' or '=', stands between the name of a secret and a value. A colon
// with no blank or quote about it also joins the parts of an id, so there the name must be the whole part.
func assignsSecret(s string, i int) bool {
	before := strings.TrimRight(s[:i], " \"'`")
	after := strings.TrimLeft(s[i+1:], " \"'`")
	if after == "" {
		return false
	}
	start := len(before)
	for start > 0 && (isAlnum(before[start-1]) || before[start-1] == '_' || before[start-1] == '-') {
		start--
	}
	joins := s[i] == ':' && len(before) == i && len(after) == len(s)-i-1
	name := strings.TrimRight(before[start:], "_-")
	if name == "" {
		return false
	}
	for _, secret := range secretsBy[name[len(name)-1]|0x20] {
		if (!joins || !secret.word) && namesSecret(name, secret.name, joins) {
			return true
		}
	}
	return false
}

type secretName struct {
	name string
	word bool // it is also an ordinary word
}

// secretsBy are the names of secrets by their last letter.
var secretsBy = func() (by [256][]secretName) {
	for _, name := range secretNames {
		last := name[len(name)-1]
		by[last] = append(by[last], secretName{name, false})
	}
	for _, name := range secretWords {
		last := name[len(name)-1]
		by[last] = append(by[last], secretName{name, true})
	}
	return by
}()

// namesSecret reports whether name, read from its end and without separators, is secret, or ends with it as a word.
func namesSecret(name, secret string, whole bool) bool {
	i := len(name)
	for j := len(secret) - 1; j >= 0; j-- {
		for i > 0 && (name[i-1] == '_' || name[i-1] == '-') {
			i--
		}
		if i == 0 || name[i-1]|0x20 != secret[j] {
			return false
		}
		i--
	}
	if i == 0 {
		return true
	}
	return !whole && (name[i-1] == '_' || name[i-1] == '-' || isUpper(name[i]) && isLower(name[i-1]))
}

var homeVariables = []string{
	"$HOME", "${HOME}", "$env:USERPROFILE", "%USERPROFILE%", "%HOMEPATH%", "%APPDATA%", "%LOCALAPPDATA%",
}

// beginsPath reports whether an absolute, home or UNC path begins at i.
func beginsPath(s string, i int) bool {
	if i > 0 && strings.IndexByte(" \t\r\n\"'`=:,;([{<>|", s[i-1]) < 0 {
		return false
	}
	rest := s[i+1:]
	switch s[i] {
	case '/':
		return rest == "" || rest[0] > ' '
	case '\\':
		// \\server, or \folder\.
		return rest != "" && (rest[0] == '\\' || isAlnum(rest[0]) && strings.IndexByte(rest, '\\') > 0)
	case '~':
		user := leading(rest, func(c byte) bool { return isAlnum(c) || c == '_' || c == '-' || c == '.' })
		if len(user) == len(rest) {
			return user == ""
		}
		return rest[len(user)] == '/' || rest[len(user)] == '\\'
	}
	for _, name := range homeVariables {
		if hasPrefixFold(s[i:], name) {
			after := s[i+len(name):]
			return after == "" || !isAlnum(after[0]) && after[0] != '_'
		}
	}
	return false
}

// isDriveAt reports whether the colon at i follows the one letter of a Windows drive, with a path after it.
func isDriveAt(s string, i int) bool {
	return i > 0 && isLetter(s[i-1]) && (i == 1 || !isAlnum(s[i-2])) && i+1 < len(s) && (s[i+1] == '\\' || s[i+1] == '/')
}

// isEmailAt reports whether the @ at i stands between a mailbox and a domain that ends in letters.
func isEmailAt(s string, i int) bool {
	mailbox := func(c byte) bool { return isAlnum(c) || c >= utf8.RuneSelf || strings.IndexByte("._%+-'", c) >= 0 }
	if i == 0 || !mailbox(s[i-1]) {
		return false
	}
	domain := leading(s[i+1:], func(c byte) bool { return isAlnum(c) || c >= utf8.RuneSelf || c == '.' || c == '-' })
	domain = strings.TrimRight(domain, ".-")
	dot := strings.LastIndexByte(domain, '.')
	if dot <= 0 || len(domain)-dot-1 < 2 {
		return false
	}
	for j := dot + 1; j < len(domain); j++ {
		if isDigit(domain[j]) {
			return false
		}
	}
	return true
}

// leading is the longest beginning of s whose bytes are all of a kind.
func leading(s string, of func(byte) bool) string {
	for i := range len(s) {
		if !of(s[i]) {
			return s[:i]
		}
	}
	return s
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func isLetter(c byte) bool       { return isLower(c) || isUpper(c) }
func isUpperOrDigit(c byte) bool { return isUpper(c) || isDigit(c) }
func isLowerOrDigit(c byte) bool { return isLower(c) || isDigit(c) }
func isBase64URL(c byte) bool    { return isAlnum(c) || c == '-' || c == '_' }
func isSchemeByte(c byte) bool   { return isAlnum(c) || c == '+' || c == '-' || c == '.' }
