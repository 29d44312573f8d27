-- Trade-Lookup and Trade-Update. Parameters begin with _, results with o_, columns with neither.

-- Frames: 1 these trades, 2 the newest of an account, 3 of a security, 4 the history of the lots of
-- an account's first trade.
CREATE FUNCTION trade_lookup(
    _frame smallint, _trades bigint[], _ca bigint, _symb integer, _until bigint,
    OUT o_t bigint[], OUT o_bid bigint[], OUT o_price bigint[], OUT o_executor text[],
    OUT o_amt bigint[], OUT o_cash_type text[], OUT o_cash bigint[], OUT o_cash_name text[],
    OUT o_steps bigint[], OUT o_moves bigint[])
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _frame = 4 THEN
        SELECT array_agg(moved) INTO o_moves
        FROM (SELECT n.after - n.before AS moved
            FROM holding_history m JOIN holding_history n ON n.h = m.h
            WHERE m.t = (SELECT min(t) FROM trade WHERE ca = _ca) ORDER BY m.h, n.t LIMIT 20) moves;
        RETURN;
    ELSIF _frame = 2 THEN
        _trades := ARRAY(SELECT t FROM trade WHERE ca = _ca AND entered <= _until
            ORDER BY t DESC LIMIT 20);
    ELSIF _frame = 3 THEN
        _trades := ARRAY(SELECT t FROM trade WHERE symb = _symb AND entered <= _until
            ORDER BY t DESC LIMIT 20);
    END IF;
    SELECT array_agg(d.t), array_agg(d.bid), array_agg(d.price), array_agg(d.executor),
        array_agg(e.amt), array_agg(e.cash_type), array_agg(c.amt), array_agg(c.name)
    INTO o_t, o_bid, o_price, o_executor, o_amt, o_cash_type, o_cash, o_cash_name
    FROM trade d LEFT JOIN settlement e USING (t) LEFT JOIN cash_transaction c USING (t)
    WHERE d.t = ANY(_trades);
    SELECT array_agg(dts) INTO o_steps
    FROM (SELECT sum(dts)::bigint AS dts FROM trade_history WHERE t = ANY(_trades) GROUP BY t) steps;
END $$;

-- The frames 1 to 3, with a correction to each trade found.
CREATE FUNCTION trade_update(
    _frame smallint, _trades bigint[], _ca bigint, _symb integer, _until bigint,
    OUT o_t bigint[], OUT o_bid bigint[], OUT o_price bigint[], OUT o_executor text[],
    OUT o_amt bigint[], OUT o_cash_type text[], OUT o_cash bigint[], OUT o_cash_name text[],
    OUT o_steps bigint[], OUT o_moves bigint[])
LANGUAGE plpgsql AS $$
BEGIN
    SELECT * INTO o_t, o_bid, o_price, o_executor, o_amt, o_cash_type, o_cash, o_cash_name, o_steps,
        o_moves
    FROM trade_lookup(_frame, _trades, _ca, _symb, _until);
    IF _frame = 1 THEN
        UPDATE trade SET executor = CASE WHEN executor LIKE '% X %'
            THEN replace(executor, ' X ', ' ') ELSE replace(executor, ' ', ' X ') END
        WHERE t = ANY(o_t);
    ELSIF _frame = 2 THEN
        UPDATE settlement SET cash_type = CASE WHEN cash_type LIKE '% Account'
            THEN replace(cash_type, ' Account', '') ELSE cash_type || ' Account' END
        WHERE t = ANY(o_t);
    ELSE
        UPDATE cash_transaction SET name = CASE WHEN name LIKE '% shares of %'
            THEN replace(name, ' shares of ', ' of ') ELSE replace(name, ' of ', ' shares of ') END
        WHERE t = ANY(o_t);
    END IF;
END $$;
