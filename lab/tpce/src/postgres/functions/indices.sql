-- Indices beside the primary keys: for lookups that Percolator's transactions do by index rows.
CREATE UNIQUE INDEX ON customer (tax_id);
CREATE INDEX ON customer_account (c);
CREATE UNIQUE INDEX ON industry (name);
CREATE UNIQUE INDEX ON sector (name);
CREATE UNIQUE INDEX ON broker (name);
CREATE UNIQUE INDEX ON company (name);
CREATE INDEX ON company (ind, co);
CREATE INDEX ON security (co, issue);
CREATE INDEX ON trade (ca, t);
CREATE INDEX ON trade (symb, t);
CREATE INDEX ON holding_history (h, t);
CREATE INDEX ON trade_request (symb, tt, bid);
CREATE INDEX ON trade_request (b, sc);
