-- Trade-Order, Trade-Result and Market-Feed. Parameters begin with _, results with o_, columns with neither.

-- The lots that a trade of this quantity takes from, the oldest or the newest first. A sale takes from lots that
-- are held; a purchase covers short positions.
CREATE FUNCTION lots_taken(_ca bigint, _symb integer, _is_sell boolean, _lifo boolean, _qty bigint)
RETURNS TABLE (lot bigint, price bigint, held bigint, remains bigint, taken bigint)
LANGUAGE sql STABLE AS $$
    SELECT t, price, qty, CASE WHEN _is_sell THEN qty - taken ELSE qty + taken END, taken
    FROM (SELECT t, price, qty, least(abs(qty), _qty - before) AS taken
        FROM (SELECT t, price, qty, (sum(abs(qty)) OVER (
                    ORDER BY CASE WHEN _lifo THEN -dts ELSE dts END, CASE WHEN _lifo THEN -t ELSE t END
                    ROWS UNBOUNDED PRECEDING))::bigint - abs(qty) AS before
            FROM holding
            WHERE ca = _ca AND symb = _symb AND CASE WHEN _is_sell THEN qty > 0 ELSE qty < 0 END) lots
        WHERE before < _qty) lots
$$;

CREATE FUNCTION trade_order(
    _t bigint, _ca bigint, _executor_tax_id text, _symb integer, _company text, _issue smallint,
    _tt smallint, _qty bigint, _bid bigint, _margin boolean, _lifo boolean, _roll_back boolean,
    _maybe_done boolean, _now bigint,
    OUT o_taken boolean, OUT o_symb integer, OUT o_qty bigint, OUT o_is_market boolean,
    OUT o_price bigint, OUT o_owed bigint, OUT o_commission bigint, OUT o_charge bigint,
    OUT o_worth bigint, OUT o_broker text)
LANGUAGE plpgsql AS $$
DECLARE
    _c bigint; _b integer; _tax_status smallint; _tier smallint; _executor text; _ex smallint;
    _is_sell boolean; _rate bigint; _position bigint; _gain bigint; _status smallint;
BEGIN
    o_taken := false;
    IF _maybe_done THEN
        SELECT d.symb, d.qty, k.is_market INTO o_symb, o_qty, o_is_market
        FROM trade d JOIN trade_type k USING (tt) WHERE d.t = _t;
        IF FOUND THEN
            o_taken := true;
            RETURN;
        END IF;
    END IF;
    SELECT a.c, a.b, a.tax_status, c.tier, c.first_name || ' ' || c.last_name, b.name
    INTO STRICT _c, _b, _tax_status, _tier, _executor, o_broker
    FROM customer_account a JOIN customer c USING (c) JOIN broker b USING (b) WHERE a.ca = _ca;
    IF _executor_tax_id IS NOT NULL THEN
        SELECT first_name || ' ' || last_name INTO STRICT _executor
        FROM account_permission WHERE ca = _ca AND tax_id = _executor_tax_id;
    END IF;
    IF _company IS NULL THEN
        SELECT s.symb, s.ex, l.price INTO STRICT o_symb, _ex, o_price
        FROM security s JOIN company USING (co) JOIN last_trade l USING (symb) WHERE s.symb = _symb;
    ELSE
        SELECT s.symb, s.ex, l.price INTO STRICT o_symb, _ex, o_price
        FROM company o JOIN security s USING (co) JOIN last_trade l USING (symb)
        WHERE o.name = _company AND s.issue = _issue LIMIT 1;
    END IF;
    SELECT k.is_sell, k.is_market, h.charge, r.rate,
        (SELECT qty FROM holding_summary WHERE ca = _ca AND symb = o_symb)
    INTO STRICT _is_sell, o_is_market, o_charge, _rate, _position
    FROM trade_type k JOIN charge h USING (tt) JOIN commission_rate r USING (tt, tier)
    WHERE k.tt = _tt AND h.tier = _tier AND r.ex = _ex AND r.from_qty <= _qty AND r.to_qty >= _qty;
    IF NOT o_is_market THEN
        o_price := _bid;
    END IF;
    o_worth := 0;
    IF _margin THEN
        SELECT a.bal + coalesce((SELECT sum(h.qty * l.price)
            FROM (SELECT symb, qty FROM holding_summary WHERE ca = _ca ORDER BY symb LIMIT 10) h
            JOIN last_trade l USING (symb)), 0)
        INTO STRICT o_worth FROM customer_account a WHERE a.ca = _ca;
    END IF;
    o_owed := 0;
    IF _tax_status IN (1, 2) AND (CASE WHEN _is_sell THEN _position > 0 ELSE _position < 0 END) THEN
        SELECT sum(taken * CASE WHEN _is_sell THEN o_price - price ELSE price - o_price END)
        INTO _gain FROM lots_taken(_ca, o_symb, _is_sell, _lifo, _qty);
        IF _gain > 0 THEN
            SELECT _gain * coalesce(sum(rate), 0)::bigint / 10000 INTO o_owed
            FROM customer_taxrate JOIN taxrate USING (tx) WHERE c = _c;
        END IF;
    END IF;
    o_commission := _qty * o_price * _rate / 10000;
    o_qty := _qty;
    IF _roll_back THEN
        RETURN;
    END IF;
    -- Submitted, or pending until the market triggers it.
    _status := CASE WHEN o_is_market THEN 2 ELSE 3 END;
    INSERT INTO trade (t, ca, symb, tt, qty, bid, executor, lifo, is_cash, entered, status, dts, price,
        charge, commission, tax)
    VALUES (_t, _ca, o_symb, _tt, _qty, o_price, _executor, _lifo, NOT _margin, _now, _status, _now, 0,
        o_charge, o_commission, 0);
    INSERT INTO trade_history (t, seq, dts, status) VALUES (_t, 0, _now, _status);
    IF NOT o_is_market THEN
        INSERT INTO trade_request (t, tt, symb, qty, bid, b, sc)
        SELECT _t, _tt, o_symb, _qty, o_price, _b, i.sc
        FROM security s JOIN company o USING (co) JOIN industry i USING (ind) WHERE s.symb = o_symb;
    END IF;
END $$;

CREATE FUNCTION trade_result(
    _t bigint, _price bigint, _now bigint, _due_day integer,
    OUT o_unchanged boolean, OUT o_amt bigint, OUT o_tax bigint)
LANGUAGE plpgsql AS $$
DECLARE
    _d record;
    _lots bigint[]; _held bigint[]; _remain bigint[]; _gone bigint[];
    _split bigint; _rest bigint; _taken bigint; _gain bigint;
    _signed bigint; _position bigint; _commission bigint;
BEGIN
    SELECT d.ca, d.symb, d.tt, d.qty, d.lifo, d.is_cash, d.status, d.charge, a.c, a.tax_status,
        k.is_sell, k.is_market, r.rate,
        (SELECT h.qty FROM holding_summary h WHERE h.ca = d.ca AND h.symb = d.symb) AS position
    INTO STRICT _d
    FROM trade d JOIN customer_account a USING (ca) JOIN customer c USING (c)
        JOIN trade_type k ON k.tt = d.tt JOIN security s ON s.symb = d.symb
        JOIN commission_rate r ON r.tier = c.tier AND r.tt = d.tt AND r.ex = s.ex
            AND r.from_qty <= d.qty AND r.to_qty >= d.qty
    WHERE d.t = _t;
    o_unchanged := _d.status = 0;
    IF o_unchanged THEN
        RETURN;
    END IF;

    -- Lots: the trade uses up all but the last that it takes from.
    SELECT array_agg(lot), array_agg(held), array_agg(remains), array_agg(lot) FILTER (WHERE remains = 0),
        max(lot) FILTER (WHERE remains <> 0), max(remains) FILTER (WHERE remains <> 0),
        coalesce(sum(taken), 0),
        coalesce(sum(taken * CASE WHEN _d.is_sell THEN _price - price ELSE price - _price END), 0)
    INTO _lots, _held, _remain, _gone, _split, _rest, _taken, _gain
    FROM lots_taken(_d.ca, _d.symb, _d.is_sell, _d.lifo, _d.qty);
    IF _gone IS NOT NULL THEN
        DELETE FROM holding WHERE ca = _d.ca AND symb = _d.symb AND t = ANY(_gone);
    END IF;
    IF _split IS NOT NULL THEN
        UPDATE holding SET qty = _rest WHERE ca = _d.ca AND symb = _d.symb AND t = _split;
    END IF;
    IF _taken < _d.qty THEN
        _rest := CASE WHEN _d.is_sell THEN _taken - _d.qty ELSE _d.qty - _taken END;
        INSERT INTO holding (ca, symb, dts, t, qty, price)
        VALUES (_d.ca, _d.symb, _now, _t, _rest, _price);
        _lots := _lots || _t;
        _held := _held || 0::bigint;
        _remain := _remain || _rest;
    END IF;
    INSERT INTO holding_history (t, h, before, after)
    SELECT _t, lot, held, remains FROM unnest(_lots, _held, _remain) AS moved(lot, held, remains);

    _signed := CASE WHEN _d.is_sell THEN -_d.qty ELSE _d.qty END;
    _position := coalesce(_d.position, 0) + _signed;
    IF _position = 0 THEN
        DELETE FROM holding_summary WHERE ca = _d.ca AND symb = _d.symb;
    ELSIF _d.position IS NULL THEN
        INSERT INTO holding_summary (ca, symb, qty) VALUES (_d.ca, _d.symb, _position);
    ELSE
        UPDATE holding_summary SET qty = _position WHERE ca = _d.ca AND symb = _d.symb;
    END IF;

    o_tax := 0;
    IF _d.tax_status IN (1, 2) AND _gain > 0 THEN
        SELECT _gain * coalesce(sum(rate), 0)::bigint / 10000 INTO o_tax
        FROM customer_taxrate JOIN taxrate USING (tx) WHERE c = _d.c;
    END IF;
    _commission := _d.qty * _price * _d.rate / 10000;
    -- A broker withholds taxes only for tax status 1.
    o_amt := -_signed * _price - _d.charge - _commission
        - CASE WHEN _d.tax_status = 1 THEN o_tax ELSE 0 END;
    UPDATE trade SET status = 0, dts = _now, price = _price, commission = _commission, tax = o_tax
    WHERE t = _t;
    INSERT INTO trade_history (t, seq, dts, status)
    VALUES (_t, CASE WHEN _d.is_market THEN 1 ELSE 2 END, _now, 0);
    INSERT INTO settlement (t, cash_type, due_day, amt)
    VALUES (_t, CASE WHEN _d.is_cash THEN 'Cash Account' ELSE 'Margin' END, _due_day, o_amt);
    IF _d.is_cash THEN
        INSERT INTO cash_transaction (t, dts, amt, name)
        VALUES (_t, _now, o_amt, CASE WHEN _d.is_sell THEN 'Sell ' ELSE 'Buy ' END || _d.qty
            || ' shares of ' || _d.symb);
        UPDATE customer_account SET bal = bal + o_amt WHERE ca = _d.ca;
    END IF;
END $$;

CREATE FUNCTION market_feed(
    _symbols integer[], _prices bigint[], _quantities bigint[], _now bigint,
    OUT o_volumes bigint[], OUT o_t bigint[], OUT o_symb integer[], OUT o_qty bigint[])
LANGUAGE plpgsql AS $$
BEGIN
    WITH told AS (
        UPDATE last_trade SET price = new.price, dts = _now, vol = vol + new.qty
        FROM unnest(_symbols, _prices, _quantities) AS new(symb, price, qty)
        WHERE last_trade.symb = new.symb RETURNING last_trade.vol - new.qty AS was)
    SELECT array_agg(was) INTO o_volumes FROM told;
    WITH triggered AS (
        DELETE FROM trade_request r USING unnest(_symbols, _prices) AS new(symb, price)
        WHERE r.symb = new.symb AND CASE r.tt WHEN 3 THEN new.price >= r.bid ELSE new.price <= r.bid END
        RETURNING r.t, r.symb, r.qty)
    SELECT array_agg(t), array_agg(symb), array_agg(qty) INTO o_t, o_symb, o_qty FROM triggered;
    IF o_t IS NOT NULL THEN
        UPDATE trade SET status = 2, dts = _now WHERE t = ANY(o_t);
        INSERT INTO trade_history (t, seq, dts, status)
        SELECT t, 1, _now, 2 FROM unnest(o_t) AS submitted(t);
    END IF;
END $$;
