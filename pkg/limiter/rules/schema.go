package rules

// Schema is the schema of rules and shedder settings that this release reads and writes. It
// increases with each field or word that the release before rejects; documents do not state it.
const Schema = 1
