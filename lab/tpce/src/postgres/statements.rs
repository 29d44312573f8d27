//! Every statement, prepared once for each connection.

macro_rules! statements {
    ($(#[$attribute:meta])* $all:ident { $($name:ident = $sql:expr;)* }) => {
        $(#[$attribute])*
        pub(super) struct $all { $(pub(super) $name: tokio_postgres::Statement,)* }

        impl std::fmt::Debug for $all {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($all)).finish_non_exhaustive()
            }
        }

        impl $all {
            pub(super) async fn prepare(
                client: &tokio_postgres::Client,
            ) -> Result<Self, tokio_postgres::Error> {
                $(let $name = client.prepare($sql).await?;)*
                Ok($all { $($name,)* })
            }
        }
    };
}
pub(super) use statements;

statements! {
    /// The prepared statements of a connection.
    Statements {

    // Trade-Order.
    order_taken = "SELECT symb, qty, tt FROM trade WHERE t = $1";
    order_account = "SELECT a.c, a.b, a.tax_status, c.tier, c.first_name, c.last_name, b.name
        FROM customer_account a JOIN customer c USING (c) JOIN broker b USING (b) WHERE a.ca = $1";
    order_executor = "SELECT first_name, last_name FROM account_permission
        WHERE ca = $1 AND tax_id = $2";
    order_security = "SELECT s.symb, s.ex, l.price
        FROM security s JOIN company USING (co) JOIN last_trade l USING (symb) WHERE s.symb = $1";
    order_issue = "SELECT s.symb, s.ex, l.price
        FROM company o JOIN security s USING (co) JOIN last_trade l USING (symb)
        WHERE o.name = $1 AND s.issue = $2 LIMIT 1";
    order_fees = "SELECT tt.is_sell, tt.is_market, h.charge, r.rate,
            (SELECT qty FROM holding_summary WHERE ca = $4 AND symb = $5)
        FROM trade_type tt JOIN charge h USING (tt) JOIN commission_rate r USING (tt, tier)
        WHERE tt.tt = $1 AND h.tier = $2 AND r.ex = $3 AND r.from_qty <= $6 AND r.to_qty >= $6";
    order_worth = "SELECT a.bal + coalesce((SELECT sum(h.qty * l.price)
            FROM (SELECT symb, qty FROM holding_summary WHERE ca = $1 ORDER BY symb LIMIT 10) h
            JOIN last_trade l USING (symb)), 0)::bigint
        FROM customer_account a WHERE a.ca = $1";
    lots = "SELECT dts, t, qty, price FROM holding WHERE ca = $1 AND symb = $2 ORDER BY dts, t";
    tax_rates = "SELECT coalesce(sum(rate), 0)::bigint FROM customer_taxrate JOIN taxrate USING (tx)
        WHERE c = $1";
    insert_trade = "INSERT INTO trade (t, ca, symb, tt, qty, bid, executor, lifo, is_cash, entered,
            status, dts, price, charge, commission, tax)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $10, 0, $12, $13, 0)";
    insert_step = "INSERT INTO trade_history (t, seq, dts, status) VALUES ($1, $2, $3, $4)";
    insert_request = "INSERT INTO trade_request (t, tt, symb, qty, bid, b, sc)
        SELECT $1, $2, $3, $4, $5, $6, i.sc
        FROM security s JOIN company o USING (co) JOIN industry i USING (ind) WHERE s.symb = $3";

    // Trade-Result.
    result_trade = "SELECT d.ca, d.symb, d.tt, d.qty, d.lifo, d.is_cash, d.status, d.charge, a.c,
            a.tax_status, tt.is_sell, tt.is_market, c.tier, s.ex,
            (SELECT h.qty FROM holding_summary h WHERE h.ca = d.ca AND h.symb = d.symb)
        FROM trade d JOIN customer_account a USING (ca) JOIN customer c USING (c)
            JOIN trade_type tt ON tt.tt = d.tt JOIN security s ON s.symb = d.symb
        WHERE d.t = $1";
    result_rate = "SELECT rate FROM commission_rate
        WHERE tier = $1 AND tt = $2 AND ex = $3 AND from_qty <= $4 AND to_qty >= $4";
    delete_lots = "DELETE FROM holding WHERE ca = $1 AND symb = $2 AND t = ANY($3)";
    update_lots = "UPDATE holding SET qty = new.qty
        FROM unnest($3::bigint[], $4::bigint[]) AS new(t, qty)
        WHERE ca = $1 AND symb = $2 AND holding.t = new.t";
    insert_lot = "INSERT INTO holding (ca, symb, dts, t, qty, price)
        VALUES ($1, $2, $3, $4, $5, $6)";
    insert_moves = "INSERT INTO holding_history (t, h, before, after)
        SELECT $1, new.h, new.was, new.now FROM
            unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS new(h, was, now)";
    delete_position = "DELETE FROM holding_summary WHERE ca = $1 AND symb = $2";
    update_position = "UPDATE holding_summary SET qty = $3 WHERE ca = $1 AND symb = $2";
    insert_position = "INSERT INTO holding_summary (ca, symb, qty) VALUES ($1, $2, $3)";
    complete_trade = "UPDATE trade SET status = 0, dts = $2, price = $3, commission = $4, tax = $5
        WHERE t = $1";
    insert_settlement = "INSERT INTO settlement (t, cash_type, due_day, amt)
        VALUES ($1, $2, $3, $4)";
    insert_cash = "INSERT INTO cash_transaction (t, dts, amt, name) VALUES ($1, $2, $3, $4)";
    add_balance = "UPDATE customer_account SET bal = bal + $2 WHERE ca = $1";

    // Market-Feed.
    feed_prices = "UPDATE last_trade SET price = new.price, dts = $4, vol = vol + new.qty
        FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS new(symb, price, qty)
        WHERE last_trade.symb = new.symb RETURNING last_trade.vol - new.qty";
    feed_triggered = "DELETE FROM trade_request r
        USING unnest($1::integer[], $2::bigint[]) AS new(symb, price)
        WHERE r.symb = new.symb AND CASE r.tt WHEN 3 THEN new.price >= r.bid
            ELSE new.price <= r.bid END
        RETURNING r.t, r.symb, r.qty";
    feed_submit = "UPDATE trade SET status = 2, dts = $2 WHERE t = ANY($1)";
    feed_steps = "INSERT INTO trade_history (t, seq, dts, status)
        SELECT t, 1, $2, 2 FROM unnest($1::bigint[]) AS submitted(t)";

    // Trade-Status.
    status_trades = "SELECT d.qty + d.charge + length(tt.name) + length(st.name), s.ex, e.name,
            d.t, d.dts, s.name
        FROM (SELECT t, symb, tt, status, qty, charge, dts FROM trade WHERE ca = $1
            ORDER BY t DESC LIMIT 50) d
        JOIN trade_type tt USING (tt) JOIN status_type st ON st.st = d.status
        JOIN security s USING (symb) JOIN exchange e USING (ex)";
    status_names = "SELECT length(c.last_name) + length(b.name)
        FROM customer_account a JOIN customer c USING (c) JOIN broker b USING (b) WHERE a.ca = $1";

    // Market-Watch.
    watch_list = "SELECT coalesce(sum(s.num_out / 1000 * l.price), 0)::bigint,
            coalesce(sum(s.num_out / 1000 * m.close), 0)::bigint
        FROM watch_list w JOIN watch_item i USING (wl) JOIN security s USING (symb)
            JOIN last_trade l USING (symb) JOIN daily_market m USING (symb)
        WHERE w.c = $1 AND m.day = $2";
    watch_account = "SELECT coalesce(sum(s.num_out / 1000 * l.price), 0)::bigint,
            coalesce(sum(s.num_out / 1000 * m.close), 0)::bigint
        FROM holding_summary h JOIN security s USING (symb)
            JOIN last_trade l USING (symb) JOIN daily_market m USING (symb)
        WHERE h.ca = $1 AND m.day = $2";
    watch_industry = "SELECT coalesce(sum(s.num_out / 1000 * l.price), 0)::bigint,
            coalesce(sum(s.num_out / 1000 * m.close), 0)::bigint
        FROM (SELECT co FROM company JOIN industry i USING (ind) WHERE i.name = $1
            ORDER BY co LIMIT 20) o
            JOIN security s USING (co) JOIN last_trade l USING (symb)
            JOIN daily_market m USING (symb)
        WHERE m.day = $2";

    // Security-Detail.
    detail_security = "SELECT l.price + l.vol + s.num_out + length(o.description),
            length(a.line1) + length(za.town), length(x.line1) + length(zx.town), s.name, o.name,
            o.ceo, e.name, s.pe, s.high52, s.low52, s.dividend, s.yields
        FROM security s JOIN company o USING (co) JOIN exchange e USING (ex)
            JOIN address a ON a.ad = o.ad JOIN zip_code za ON za.zc = a.zc
            JOIN address x ON x.ad = e.ad JOIN zip_code zx ON zx.zc = x.zc
            JOIN last_trade l USING (symb)
        WHERE s.symb = $1";
    detail_competitors = "SELECT o.name, i.name
        FROM security s JOIN company_competitor p USING (co) JOIN company o ON o.co = p.comp
            JOIN industry i ON i.ind = p.ind
        WHERE s.symb = $1 ORDER BY p.comp LIMIT 3";
    detail_quarters = "SELECT f.revenue, f.year, f.qtr, f.net_earn, f.basic_eps, f.margin, f.assets
        FROM security s JOIN financial f USING (co) WHERE s.symb = $1
        ORDER BY f.year, f.qtr LIMIT 20";
    detail_days = "SELECT close, day, high, low, vol FROM daily_market
        WHERE symb = $1 AND day >= $2 AND day < $3 ORDER BY day";
    detail_news = "SELECT n.item, n.headline, n.dts
        FROM security s JOIN news_xref x USING (co) JOIN news_item n USING (ni)
        WHERE s.symb = $1 ORDER BY x.ni LIMIT 2";

    // Customer-Position.
    position_customer = "SELECT c, tier, last_name FROM customer WHERE c = $1";
    position_by_tax_id = "SELECT c, tier, last_name FROM customer WHERE tax_id = $1";
    position_accounts = "SELECT a.ca, a.bal + coalesce(sum(h.qty * l.price), 0)::bigint
        FROM customer_account a LEFT JOIN holding_summary h USING (ca)
            LEFT JOIN last_trade l USING (symb)
        WHERE a.c = $1 GROUP BY a.ca, a.bal ORDER BY a.ca LIMIT 10";
    position_history = "SELECT h.t, sum(h.status + h.dts)::bigint
        FROM (SELECT t FROM trade WHERE ca = $1 ORDER BY t DESC LIMIT 10) d
            JOIN trade_history h USING (t)
        GROUP BY h.t";

    // Broker-Volume.
    broker_volume = "SELECT r.b, sum(r.qty * r.bid)::bigint
        FROM broker b JOIN trade_request r USING (b) JOIN sector c USING (sc)
        WHERE b.name = ANY($1) AND c.name = $2 GROUP BY r.b";

    // Trade-Lookup and Trade-Update.
    lookup_account = "SELECT t FROM trade WHERE ca = $1 AND entered <= $2 ORDER BY t DESC LIMIT 20";
    lookup_security = "SELECT t FROM trade WHERE symb = $1 AND entered <= $2
        ORDER BY t DESC LIMIT 20";
    lookup_trades = "SELECT d.t, d.bid, d.price, d.executor, e.amt, e.cash_type, c.amt, c.name
        FROM trade d LEFT JOIN settlement e USING (t) LEFT JOIN cash_transaction c USING (t)
        WHERE d.t = ANY($1)";
    lookup_steps = "SELECT t, sum(dts)::bigint FROM trade_history WHERE t = ANY($1) GROUP BY t";
    lookup_moves = "SELECT n.after - n.before
        FROM holding_history m JOIN holding_history n ON n.h = m.h
        WHERE m.t = (SELECT min(t) FROM trade WHERE ca = $1) ORDER BY m.h, n.t LIMIT 20";
    update_executors = "UPDATE trade SET executor = CASE WHEN executor LIKE '% X %'
            THEN replace(executor, ' X ', ' ') ELSE replace(executor, ' ', ' X ') END
        WHERE t = ANY($1)";
    update_settlements = "UPDATE settlement SET cash_type = CASE WHEN cash_type LIKE '% Account'
            THEN replace(cash_type, ' Account', '') ELSE cash_type || ' Account' END
        WHERE t = ANY($1)";
    update_cash = "UPDATE cash_transaction SET name = CASE WHEN name LIKE '% shares of %'
            THEN replace(name, ' shares of ', ' of ') ELSE replace(name, ' of ', ' shares of ') END
        WHERE t = ANY($1)";

    // Data-Maintenance.
    maintain_permission = "UPDATE account_permission p
        SET acl = CASE acl WHEN '0000' THEN '0011' ELSE '0000' END
        WHERE ca = $1
            AND tax_id = (SELECT min(tax_id) FROM account_permission WHERE ca = $1)";
    maintain_address = "UPDATE address SET line2 = CASE WHEN line2 LIKE '%*'
            THEN rtrim(line2, '*') ELSE line2 || '*' END
        WHERE ad = (SELECT ad FROM customer WHERE c = $1)";
    maintain_company = "UPDATE company SET rating = CASE WHEN rating LIKE '%*'
            THEN rtrim(rating, '*') ELSE rating || '*' END WHERE co = $1";
    maintain_customer = "UPDATE customer SET email = CASE WHEN email LIKE '%*'
            THEN rtrim(email, '*') ELSE email || '*' END WHERE c = $1";
    maintain_taxrate_of = "UPDATE customer_taxrate SET tx = tx % 160 + 1
        WHERE c = $1 AND tx = (SELECT min(tx) FROM customer_taxrate WHERE c = $1)";
    maintain_day = "UPDATE daily_market SET vol = vol + 1 WHERE symb = $1 AND day = $2";
    maintain_exchange = "UPDATE exchange SET closes = closes # 1 WHERE ex = $1";
    maintain_financial = "UPDATE financial SET start_day = start_day # 1
        WHERE co = $1 AND year = 2000 AND qtr = 1";
    maintain_news = "UPDATE news_item SET dts = dts + 1 WHERE ni = $1";
    maintain_security = "UPDATE security SET start_day = start_day # 1 WHERE symb = $1";
    maintain_taxrate = "UPDATE taxrate SET name = CASE WHEN name LIKE '%*'
            THEN rtrim(name, '*') ELSE name || '*' END WHERE tx = $1";
    maintain_watch = "UPDATE watch_item SET symb = $2
        WHERE wl = $1 AND symb = (SELECT min(symb) FROM watch_item WHERE wl = $1)
            AND NOT EXISTS (SELECT FROM watch_item WHERE wl = $1 AND symb = $2)";
    }
}
