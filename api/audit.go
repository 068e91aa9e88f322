package api

// AuditEntries is the header of an export of the audit that tells how many entries
// the chain had when the export began. One with fewer is not whole.
const AuditEntries = "Audit-Entries"
