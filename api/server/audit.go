package server

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/labstack/echo/v4"

	"agentos/api"
)

// Audit is the audit chain of the environment.
type Audit interface {
	// End returns how many entries there are.
	End(ctx context.Context) (int64, error)
	// Read returns up to limit entries after entry n, byte for byte.
	Read(ctx context.Context, n int64, limit int) ([]json.RawMessage, error)
}

// auditPage is how many entries are read at once.
const auditPage = 500

// exportAudit sends the audit chain, a line for each entry, up to the one that was
// the last when it began. A header tells how many that are, so that a reader knows
// whether it has got all of them.
func (s *Server) exportAudit(c echo.Context) error {
	in := s.newInput(c)
	in.env()
	after := in.integer("after", 0, 1<<53-1, 0)
	if err := in.finish(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	end, err := s.cfg.Audit.End(ctx)
	if err != nil {
		return storeError(err, "")
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, "application/jsonl")
	h.Set(api.AuditEntries, strconv.FormatInt(end, 10))
	for after < end {
		lines, err := s.cfg.Audit.Read(ctx, after, int(min(auditPage, end-after)))
		if err != nil || len(lines) == 0 {
			return storeError(err, "") // once a line is out, the header tells that the rest is missing
		}
		for _, line := range lines {
			s.limitWrite(c)
			if _, err := c.Response().Write(append(line, '\n')); err != nil {
				return gone{err}
			}
		}
		after += int64(len(lines))
	}
	c.Response().Flush()
	return nil
}
