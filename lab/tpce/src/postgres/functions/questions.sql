-- The functions that only read. Parameters begin with _, results with o_, columns with neither.

CREATE FUNCTION trade_status(
    _ca bigint,
    OUT o_figures bigint[], OUT o_ex smallint[], OUT o_exchanges text[], OUT o_t bigint[],
    OUT o_dts bigint[], OUT o_securities text[], OUT o_names integer)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT array_agg(d.qty + d.charge + length(k.name) + length(st.name)), array_agg(s.ex),
        array_agg(e.name), array_agg(d.t), array_agg(d.dts), array_agg(s.name)
    INTO o_figures, o_ex, o_exchanges, o_t, o_dts, o_securities
    FROM (SELECT t, symb, tt, status, qty, charge, dts FROM trade WHERE ca = _ca
            ORDER BY t DESC LIMIT 50) d
        JOIN trade_type k USING (tt) JOIN status_type st ON st.st = d.status
        JOIN security s USING (symb) JOIN exchange e USING (ex);
    SELECT length(c.last_name) + length(b.name) INTO STRICT o_names
    FROM customer_account a JOIN customer c USING (c) JOIN broker b USING (b) WHERE a.ca = _ca;
END $$;

CREATE FUNCTION market_watch(
    _c bigint, _ca bigint, _industry text, _day integer, OUT o_now bigint, OUT o_then bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _c IS NOT NULL THEN
        SELECT coalesce(sum(s.num_out / 1000 * l.price), 0), coalesce(sum(s.num_out / 1000 * m.close), 0)
        INTO o_now, o_then
        FROM watch_list w JOIN watch_item i USING (wl) JOIN security s USING (symb)
            JOIN last_trade l USING (symb) JOIN daily_market m USING (symb)
        WHERE w.c = _c AND m.day = _day;
    ELSIF _ca IS NOT NULL THEN
        SELECT coalesce(sum(s.num_out / 1000 * l.price), 0), coalesce(sum(s.num_out / 1000 * m.close), 0)
        INTO o_now, o_then
        FROM holding_summary h JOIN security s USING (symb)
            JOIN last_trade l USING (symb) JOIN daily_market m USING (symb)
        WHERE h.ca = _ca AND m.day = _day;
    ELSE
        SELECT coalesce(sum(s.num_out / 1000 * l.price), 0), coalesce(sum(s.num_out / 1000 * m.close), 0)
        INTO o_now, o_then
        FROM (SELECT co FROM company JOIN industry i USING (ind) WHERE i.name = _industry
                ORDER BY co LIMIT 20) o
            JOIN security s USING (co) JOIN last_trade l USING (symb)
            JOIN daily_market m USING (symb)
        WHERE m.day = _day;
    END IF;
END $$;

CREATE FUNCTION security_detail(
    _symb integer, _from integer, _until integer,
    OUT o_security bigint, OUT o_address integer, OUT o_exchange_address integer,
    OUT o_names text[], OUT o_figures bigint[],
    OUT o_competitors text[], OUT o_industries text[],
    OUT o_revenue bigint[], OUT o_year integer[], OUT o_qtr smallint[], OUT o_net_earn bigint[],
    OUT o_basic_eps bigint[], OUT o_margin bigint[], OUT o_assets bigint[],
    OUT o_close bigint[], OUT o_day integer[], OUT o_high bigint[], OUT o_low bigint[],
    OUT o_vol bigint[],
    OUT o_items text[], OUT o_headlines text[], OUT o_dts bigint[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    _co integer;
BEGIN
    SELECT s.co, l.price + l.vol + s.num_out + length(o.description),
        length(a.line1) + length(za.town), length(x.line1) + length(zx.town),
        ARRAY[s.name, o.name, o.ceo, e.name], ARRAY[s.pe, s.high52, s.low52, s.dividend, s.yields]
    INTO STRICT _co, o_security, o_address, o_exchange_address, o_names, o_figures
    FROM security s JOIN company o USING (co) JOIN exchange e USING (ex)
        JOIN address a ON a.ad = o.ad JOIN zip_code za ON za.zc = a.zc
        JOIN address x ON x.ad = e.ad JOIN zip_code zx ON zx.zc = x.zc
        JOIN last_trade l USING (symb)
    WHERE s.symb = _symb;
    SELECT array_agg(company), array_agg(industry) INTO o_competitors, o_industries
    FROM (SELECT o.name AS company, i.name AS industry
        FROM company_competitor p JOIN company o ON o.co = p.comp JOIN industry i ON i.ind = p.ind
        WHERE p.co = _co ORDER BY p.comp LIMIT 3) competitors;
    SELECT array_agg(revenue), array_agg(year), array_agg(qtr), array_agg(net_earn),
        array_agg(basic_eps), array_agg(margin), array_agg(assets)
    INTO o_revenue, o_year, o_qtr, o_net_earn, o_basic_eps, o_margin, o_assets
    FROM (SELECT * FROM financial WHERE co = _co ORDER BY year, qtr LIMIT 20) quarters;
    SELECT array_agg(close), array_agg(day), array_agg(high), array_agg(low), array_agg(vol)
    INTO o_close, o_day, o_high, o_low, o_vol
    FROM (SELECT * FROM daily_market WHERE symb = _symb AND day >= _from AND day < _until
        ORDER BY day) days;
    SELECT array_agg(item), array_agg(headline), array_agg(dts) INTO o_items, o_headlines, o_dts
    FROM (SELECT n.item, n.headline, n.dts FROM news_xref x JOIN news_item n USING (ni)
        WHERE x.co = _co ORDER BY x.ni LIMIT 2) news;
END $$;

CREATE FUNCTION customer_position(
    _c bigint, _tax_id text, _history boolean,
    OUT o_tier smallint, OUT o_name text, OUT o_ca bigint[], OUT o_worth bigint[],
    OUT o_t bigint[], OUT o_steps bigint[])
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _tax_id IS NULL THEN
        SELECT tier, last_name INTO STRICT o_tier, o_name FROM customer WHERE c = _c;
    ELSE
        SELECT c, tier, last_name INTO STRICT _c, o_tier, o_name FROM customer WHERE tax_id = _tax_id;
    END IF;
    SELECT array_agg(ca ORDER BY ca), array_agg(worth ORDER BY ca) INTO o_ca, o_worth
    FROM (SELECT a.ca, a.bal + coalesce(sum(h.qty * l.price), 0)::bigint AS worth
        FROM customer_account a LEFT JOIN holding_summary h USING (ca)
            LEFT JOIN last_trade l USING (symb)
        WHERE a.c = _c GROUP BY a.ca, a.bal ORDER BY a.ca LIMIT 10) accounts;
    IF _history THEN
        SELECT array_agg(t), array_agg(steps) INTO o_t, o_steps
        FROM (SELECT h.t, sum(h.status + h.dts)::bigint AS steps
            FROM (SELECT t FROM trade WHERE ca = o_ca[1] ORDER BY t DESC LIMIT 10) d
                JOIN trade_history h USING (t)
            GROUP BY h.t) trades;
    END IF;
END $$;

CREATE FUNCTION broker_volume(
    _brokers text[], _sector text, OUT o_b integer[], OUT o_volumes bigint[])
LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT array_agg(b), array_agg(volume) INTO o_b, o_volumes
    FROM (SELECT r.b, sum(r.qty * r.bid)::bigint AS volume
        FROM broker b JOIN trade_request r USING (b) JOIN sector c USING (sc)
        WHERE b.name = ANY(_brokers) AND c.name = _sector GROUP BY r.b) volumes;
END $$;
