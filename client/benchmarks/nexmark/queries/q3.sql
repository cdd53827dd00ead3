-- Who sells things of category 10 in Oregon, Idaho or California?
SELECT p.name, p.city, p.state, a.id
FROM auction [UNBOUNDED] a JOIN person [UNBOUNDED] p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');
