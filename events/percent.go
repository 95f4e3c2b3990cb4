package events

import (
	"strings"
	"unicode/utf8"
)

// percentEncode writes an attribute as a header value: every byte of a space, a double quote, a percent sign and of
// what is outside the printable ASCII range becomes %XY (CloudEvents, NATS binding 3.1.3.2).
func percentEncode(s string) string {
	if isHeaderText(s) {
		return s
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isHeaderByte(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// percentDecode reads a header value: double-quoted strings are unescaped, for senders of the binding's earlier
// versions, then every %XY is decoded once. rule is what a value that cannot be read breaks.
func percentDecode(s string) (value, rule string) {
	if isHeaderText(s) {
		return s, ""
	}
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c >= 0x7f {
			return "", "must be percent-encoded outside the printable ASCII range"
		}
	}
	if s, rule = unquoteHeader(s); rule != "" {
		return "", rule
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
			return "", "must have two hex digits after each percent sign"
		}
		out = append(out, unhex(s[i+1])<<4|unhex(s[i+2]))
		i += 2
	}
	if !utf8.Valid(out) {
		return "", "must be percent-encoded UTF-8"
	}
	return string(out), ""
}

// unquoteHeader unescapes the quoted strings of RFC 7230 section 3.2.6.
func unquoteHeader(s string) (value, rule string) {
	if strings.IndexByte(s, '"') < 0 {
		return s, ""
	}
	out := make([]byte, 0, len(s))
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case quoted && s[i] == '\\' && i+1 < len(s):
			i++
			out = append(out, s[i])
		default:
			out = append(out, s[i])
		}
	}
	if quoted {
		return "", "must close its double quote"
	}
	return string(out), ""
}

// isHeaderByte: what stands for itself in a header value. It is asked of every byte of every attribute, hence the table.
func isHeaderByte(c byte) bool { return headerBytes[c] }

var headerBytes = func() (table [256]bool) {
	for c := byte('!'); c <= '~'; c++ {
		table[c] = c != '"' && c != '%'
	}
	return table
}()

// isHeaderText: nothing in s has to be encoded.
func isHeaderText(s string) bool {
	for i := range len(s) {
		if !isHeaderByte(s[i]) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
