-- The three streams of NEXMark. Rows may come up to four seconds out of order, as in the benchmark's SQL suites.
CREATE STREAM person (id BIGINT, name TEXT, email TEXT, creditCard TEXT, city TEXT, state TEXT, dateTime TIMESTAMP, extra TEXT)
    TIMESTAMP BY dateTime DELAY 4 SECONDS;
CREATE STREAM auction (id BIGINT, itemName TEXT, description TEXT, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP,
    expires TIMESTAMP, seller BIGINT, category BIGINT, extra TEXT) TIMESTAMP BY dateTime DELAY 4 SECONDS;
CREATE STREAM bid (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, dateTime TIMESTAMP, extra TEXT)
    TIMESTAMP BY dateTime DELAY 4 SECONDS;
