package events

import (
	"embed"
	"strings"
)

//go:embed schemas/*.json
var schemaFiles embed.FS

// schemaIDPrefix and a schema version are the $id of a published schema.
const schemaIDPrefix = "urn:afterwrite:schema:"

// SchemaID is the $id of the published schema of a schema version, and the dataschema of its events.
func SchemaID(schemaVersion string) string { return schemaIDPrefix + schemaVersion }

// Schema is the published JSON Schema (draft 2020-12) of a schema version, such as [ReceiptSchema]. Schemas refer to
// each other by $id, so whoever compiles one adds all of [SchemaVersions].
//
// A schema says what JSON Schema can say. Duplicate members, the spelling of numbers, depth, the boundary scan, and
// rules between members that are not fixed values are the decoder's alone.
func Schema(schemaVersion string) (schema []byte, ok bool) {
	schema, err := schemaFiles.ReadFile("schemas/" + schemaVersion + ".json")
	return schema, err == nil
}

// SchemaVersions are the names of all published schemas, sorted: those of the documents, and "vocabulary" for what they
// have in common.
func SchemaVersions() []string {
	entries, err := schemaFiles.ReadDir("schemas")
	if err != nil {
		panic(err) // the folder is embedded
	}
	versions := make([]string, len(entries))
	for i, entry := range entries {
		versions[i] = strings.TrimSuffix(entry.Name(), ".json")
	}
	return versions
}
