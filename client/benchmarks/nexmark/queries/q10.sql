-- Give each bid the day and the minute by which it is filed. A file sink writes the rows, one directory a minute.
SELECT auction, bidder, price, dateTime, extra, TO_CHAR(dateTime, 'YYYY-MM-DD') AS day, TO_CHAR(dateTime, 'HH24:MI') AS minute FROM bid;
