-- Data-Maintenance: a change to one of twelve tables. Parameters begin with _, columns do not.

CREATE FUNCTION data_maintenance(
    _table text, _c bigint, _ca bigint, _co integer, _symb integer, _day integer, _tx integer,
    _ni integer, _ex smallint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CASE _table
    WHEN 'account_permission' THEN
        UPDATE account_permission SET acl = CASE acl WHEN '0000' THEN '0011' ELSE '0000' END
        WHERE ca = _ca AND tax_id = (SELECT min(tax_id) FROM account_permission WHERE ca = _ca);
    WHEN 'address' THEN
        UPDATE address SET line2 = CASE WHEN line2 LIKE '%*' THEN rtrim(line2, '*') ELSE line2 || '*' END
        WHERE ad = (SELECT ad FROM customer WHERE c = _c);
    WHEN 'company' THEN
        UPDATE company SET rating = CASE WHEN rating LIKE '%*' THEN rtrim(rating, '*')
            ELSE rating || '*' END
        WHERE co = _co;
    WHEN 'customer' THEN
        UPDATE customer SET email = CASE WHEN email LIKE '%*' THEN rtrim(email, '*') ELSE email || '*' END
        WHERE c = _c;
    WHEN 'customer_taxrate' THEN
        UPDATE customer_taxrate SET tx = tx % 160 + 1
        WHERE c = _c AND tx = (SELECT min(tx) FROM customer_taxrate WHERE c = _c);
    WHEN 'daily_market' THEN
        UPDATE daily_market SET vol = vol + 1 WHERE symb = _symb AND day = _day;
    WHEN 'exchange' THEN
        UPDATE exchange SET closes = closes # 1 WHERE ex = _ex;
    WHEN 'financial' THEN
        UPDATE financial SET start_day = start_day # 1 WHERE co = _co AND year = 2000 AND qtr = 1;
    WHEN 'news_item' THEN
        UPDATE news_item SET dts = dts + 1 WHERE ni = _ni;
    WHEN 'security' THEN
        UPDATE security SET start_day = start_day # 1 WHERE symb = _symb;
    WHEN 'taxrate' THEN
        UPDATE taxrate SET name = CASE WHEN name LIKE '%*' THEN rtrim(name, '*') ELSE name || '*' END
        WHERE tx = _tx;
    WHEN 'watch_item' THEN
        UPDATE watch_item SET symb = _symb
        WHERE wl = _c AND symb = (SELECT min(symb) FROM watch_item WHERE wl = _c)
            AND NOT EXISTS (SELECT FROM watch_item WHERE wl = _c AND symb = _symb);
    END CASE;
END $$;
