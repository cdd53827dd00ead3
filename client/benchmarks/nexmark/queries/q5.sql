-- Which auctions had the most bids of the last ten seconds, every two seconds?
SELECT auction, num, window_start, window_end
FROM (SELECT auction, COUNT(*) AS num, window_start, window_end,
             RANK() OVER (PARTITION BY window_start, window_end ORDER BY COUNT(*) DESC) AS place
      FROM bid [RANGE 10 SECONDS SLIDE 2 SECONDS]
      GROUP BY auction, window_start, window_end)
WHERE place <= 1;
